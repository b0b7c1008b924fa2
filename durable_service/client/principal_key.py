"""A principal's key: the file that keeps it, and the public half that the service is told."""

import base64
import os
import secrets
import stat
from pathlib import Path
from typing import Final, Self

import orjson

from service_common.signing import SEED_BYTES, Signer

_MODE: Final = 0o600
_VERSION: Final = 1
_FILE_BYTES: Final = 65_536
_MEMBERS: Final = frozenset({"version", "public", "private"})


class PrincipalKeyError(ValueError):
    """A key file that must not or cannot be used. The text never shows what is in the file."""


class PrincipalKey:
    """An Ed25519 key that signs every call of one principal. Its text form shows the public half alone.

    Attributes:
        signer: What signs.
    """

    def __init__(self, seed: bytes) -> None:
        """Use a seed of 32 bytes.

        Raises:
            ValueError: It has another length.
        """
        self.signer = Signer(seed)
        self._seed = seed

    @classmethod
    def generate(cls) -> Self:
        """Make a new key."""
        return cls(secrets.token_bytes(SEED_BYTES))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a key file.

        Raises:
            PrincipalKeyError: Others may read the file, or it is no key file.
            OSError: It cannot be opened.
        """
        seed = _seed_in(_read_private(path))
        if seed is None:
            raise PrincipalKeyError(f"{path}: not a key file of version {_VERSION}")
        return cls(seed)

    def save(self, path: Path) -> None:
        """Write a new file that only its owner may read.

        Raises:
            FileExistsError: There is one.
            OSError: It cannot be written.
        """
        document = {"version": _VERSION, "public": self.public_text, "private": _encode(self._seed)}
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
            file.flush()
            os.fsync(descriptor)

    @property
    def public_text(self) -> str:
        """The public key as the service's principals name it: unpadded base64url."""
        return _encode(self.signer.public_key)

    def __repr__(self) -> str:
        return f"PrincipalKey({self.public_text})"


def _read_private(path: Path) -> bytes:
    # The mode is asked of the open file, so that it is the mode of what is read.
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise PrincipalKeyError(f"{path}: not a regular file")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise PrincipalKeyError(f"{path}: a private key that others may use; run: chmod 600 {path}")
        return file.read(_FILE_BYTES)


def _seed_in(content: bytes) -> bytes | None:
    try:
        document = orjson.loads(content)
        seed = base64.urlsafe_b64decode(document["private"] + "=")
        if document.keys() != _MEMBERS or document["version"] != _VERSION or len(seed) != SEED_BYTES:
            return None
        # A file whose halves do not fit has been edited: which one was meant cannot be told.
        return seed if _encode(Signer(seed).public_key) == document["public"] else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
