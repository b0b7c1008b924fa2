"""The forms of the `--store` setting."""

from pathlib import Path
from typing import Final

MEMORY: Final = "memory:"
SQLITE: Final = "sqlite:///"
FORMS: Final = (MEMORY, "sqlite:///PATH")


def is_known(setting: str) -> bool:
    """The setting has one of the forms that there are."""
    return setting == MEMORY or (setting.startswith(SQLITE) and len(setting) > len(SQLITE))


def file_of(setting: str) -> Path | None:
    """The file of a SQLite store: relative after three slashes, absolute after four."""
    return Path(setting.removeprefix(SQLITE)) if setting.startswith(SQLITE) else None


def kind_of(setting: str) -> str:
    """The kind of the store, such as `sqlite`."""
    return setting.partition(":")[0]
