"""What a device has learned about the keys of its sites, over restarts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from relay_service.core.identity import PublicIdentity, verify_binding
from service_common.atomic_file import create_file, replace_file

PINS_NAME: Final = "pins.json"
"""Name of the file within the folder that a device keeps things in."""

_VERSION: Final = 1


class PinError(ValueError):
    """An identity that cannot be pinned, or a file of pins that cannot be used."""


@dataclass(slots=True)
class LearnedPins:
    """What was learned beyond the pins that the owner has given.

    Attributes:
        identities: By key id, every identity that was adopted.
        roots: By key id of an adopted identity, the owner's pin that led to it; None when the relay's
            directory was trusted for it.
        retired_at_ms: By key id, from when it is not believed any more.
        served: Key ids of sites that have had work done here.
    """

    identities: dict[str, PublicIdentity] = field(default_factory=dict)
    roots: dict[str, str | None] = field(default_factory=dict)
    retired_at_ms: dict[str, int] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)


class PinFile:
    """A small JSON file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        """Use this file; nothing is touched yet."""
        self._path = path

    def load(self) -> LearnedPins:
        """Return what was learned; nothing when there is no file yet.

        Raises:
            PinError: It cannot be read.
        """
        try:
            return _parsed(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return LearnedPins()
        except OSError as error:
            raise PinError(f"{self._path}: {error.strerror or error}") from error
        except (KeyError, TypeError, ValueError, AttributeError):
            raise PinError(f"{self._path}: damaged; put it aside to start from the given pins") from None

    def save(self, learned: LearnedPins) -> None:
        """Write all of it, and return when it is on the disk.

        Raises:
            PinError: It could not be written; the file is as it was.
        """
        document = {
            "version": _VERSION,
            "adopted": {
                key_id: {"identity": identity.to_json(), "root": learned.roots[key_id]}
                for key_id, identity in sorted(learned.identities.items())
            },
            "retiredAt": dict(sorted(learned.retired_at_ms.items())),
            "served": sorted(learned.served),
        }
        content = json.dumps(document, indent=2).encode("ascii") + b"\n"
        try:
            if self._path.exists():
                replace_file(self._path, content)
            else:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                create_file(self._path, content)
        except OSError as error:
            raise PinError(f"{self._path}: {error.strerror or error}") from error


def _parsed(document: Any) -> LearnedPins:
    if document["version"] != _VERSION:
        raise ValueError("another version")
    learned = LearnedPins(served=set(map(str, document["served"])))
    for key_id, entry in _items(document["adopted"]):
        identity = PublicIdentity.from_json(entry["identity"])
        # The file is the owner's, but a slip of an editor must not become a key that may sign.
        if identity.key_id != key_id or not verify_binding(identity):
            raise ValueError("an identity that does not verify")
        learned.identities[key_id] = identity
        learned.roots[key_id] = None if entry["root"] is None else str(entry["root"])
    for key_id, at_ms in _items(document["retiredAt"]):
        learned.retired_at_ms[key_id] = int(at_ms)
    return learned


def _items(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError("not an object")
    return value.items()
