"""The forms of the `--store` setting."""

import re
from pathlib import Path
from typing import Final

from service_common.errors import SettingsError

MEMORY: Final = "memory:"
SQLITE: Final = "sqlite:///"
POSTGRES: Final = "postgresql://"
MONGO: Final = "mongodb://"
MONGO_BY_NAME: Final = "mongodb+srv://"
FORMS: Final = (
    MEMORY,
    "sqlite:///PATH",
    "postgresql://USER@HOST:PORT/DATABASE",
    "mongodb://USER@HOST:PORT/DATABASE",
)

# Between the user's name and the @ of an address.
_PASSWORD: Final = re.compile(r"(?<=://)([^:/@]*):[^?]*(?=@)")
# What opens a key is among the options too.
_PASSWORD_OPTION: Final = re.compile(r"([?&]\w*password=)[^&]*", re.IGNORECASE)


def is_known(setting: str) -> bool:
    """The setting has one of the forms that there are."""
    if setting.startswith((POSTGRES, MONGO, MONGO_BY_NAME)):
        return True
    return setting == MEMORY or (setting.startswith(SQLITE) and len(setting) > len(SQLITE))


def file_of(setting: str) -> Path | None:
    """The file of a SQLite store: relative after three slashes, absolute after four."""
    return Path(setting.removeprefix(SQLITE)) if setting.startswith(SQLITE) else None


def kind_of(setting: str) -> str:
    """The kind of the store, such as `sqlite`."""
    return setting.partition(":")[0].partition("+")[0]


def without_password(setting: str) -> str:
    """The setting as it may be shown."""
    return _PASSWORD_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1:***", setting))


def store_refused(setting: str, why: str) -> SettingsError:
    """The refusal of a setting, without what is secret in it."""
    return SettingsError(f"--store {without_password(setting)}: {why}")
