"""The version that the relay's operator offers, kept for whoever asks about this device later."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from relay_service.client.software import client_version

logger = logging.getLogger("sealwork.client")

_NAME: Final = "offered-version"
_CHARACTERS: Final = 128


def remember_offer(folder: Path) -> Callable[[str], None]:
    """Return what writes an offer into the folder; an empty text takes it out again."""

    def remember(version: str) -> None:
        try:
            if version:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                (folder / _NAME).write_text(version, encoding="utf-8")
            else:
                (folder / _NAME).unlink(missing_ok=True)
        except OSError as error:
            # Only a note: nothing depends on it.
            logger.warning("the offered version could not be noted: %s", error.strerror)

    return remember


def remembered_offer(folder: Path) -> str | None:
    """Return the version that was offered last, unless it is the one that runs; None when there is none."""
    try:
        version = (folder / _NAME).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    # The text is the operator's, and goes to a terminal.
    fit = version.isprintable() and 0 < len(version) <= _CHARACTERS
    return version if fit and version != client_version() else None
