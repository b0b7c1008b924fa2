"""The file that keeps private keys: its form, its permissions and its atomic replacement."""

import base64
import binascii
import os
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from relay_service.client.compact_json import parse_object
from relay_service.core.identity import PublicIdentity, encode_base64url

MODE = 0o600
VERSION = 1

_FILE_BYTES = 65_536
_MAXIMUM_INSTANT_MS = 9_007_199_254_740_991
# PKCS#8 DER of a raw 32-byte key is a fixed header and the key.
_IDENTITY_HEADER = bytes.fromhex("302e020100300506032b657004220420")
_ENCRYPTION_HEADER = bytes.fromhex("302e020100300506032b656e04220420")
_SECRET_BYTES = 32
_FIELDS = frozenset(
    {
        "version",
        "identityPublic",
        "identityPrivate",
        "encryptionPublic",
        "encryptionPrivate",
        "encryptionSig",
        "createdAt",
    }
)


class KeyFileError(ValueError):
    """A key file that must not or cannot be used. The text never shows what is in the file."""


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """What a key file says; nothing here has been checked against anything else.

    Attributes:
        identity_seed: Ed25519 seed, 32 bytes.
        encryption_secret: X25519 secret key, 32 bytes.
        created_at_ms: Epoch milliseconds.
        public: The public half as it was written.
    """

    identity_seed: bytes = field(repr=False)
    encryption_secret: bytes = field(repr=False)
    created_at_ms: int
    public: PublicIdentity


def read_key_file(path: Path) -> StoredKeys:
    """Read the file.

    Raises:
        KeyFileError: Group or others have any permission on the file, or it is not a key file.
        OSError: The file cannot be opened.
    """
    value = parse_object(_read_private(path))
    stored = None if value is None else _stored_keys(value)
    if stored is None:
        raise KeyFileError(f"{path}: not a key file of version {VERSION}")
    return stored


def write_key_file(path: Path, stored: StoredKeys, *, overwrite: bool) -> None:
    """Write the file with mode 0600, all of it or nothing, and flush it to the disk.

    Raises:
        FileExistsError: There is a file and it may not be replaced.
        OSError: The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        _write_new(temporary, _document(stored))
        if overwrite:
            temporary.replace(path)
        else:
            _place_new(temporary, path)
    finally:
        # Also after a write that failed half-way: what it left would be a copy of the private keys.
        temporary.unlink(missing_ok=True)
    _flush_folder(path.parent)


def _read_private(path: Path) -> bytes:
    # The mode is asked of the open file, so that it is the mode of what is read.
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise KeyFileError(f"{path}: not a regular file")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise KeyFileError(f"{path}: private keys that others may use; run: chmod 600 {path}")
        return file.read(_FILE_BYTES)


def _stored_keys(value: Mapping[str, object]) -> StoredKeys | None:
    created_at_ms = value.get("createdAt")
    if value.keys() != _FIELDS or type(value["version"]) is not int or value["version"] != VERSION:
        return None
    if type(created_at_ms) is not int or not 0 < created_at_ms <= _MAXIMUM_INSTANT_MS:
        return None
    try:
        return StoredKeys(
            identity_seed=_read_pkcs8(value["identityPrivate"], _IDENTITY_HEADER),
            encryption_secret=_read_pkcs8(value["encryptionPrivate"], _ENCRYPTION_HEADER),
            created_at_ms=created_at_ms,
            public=PublicIdentity.from_json(
                {
                    "identity": value["identityPublic"],
                    "encryption": value["encryptionPublic"],
                    "encryptionSig": value["encryptionSig"],
                }
            ),
        )
    except ValueError:
        return None


def _read_pkcs8(text: object, header: bytes) -> bytes:
    try:
        der = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except binascii.Error:
        der = b""
    if not der.startswith(header) or len(der) != len(header) + _SECRET_BYTES:
        raise ValueError("not a raw private key in PKCS#8")
    return der[len(header) :]


def _document(stored: StoredKeys) -> bytes:
    fields = {
        "version": VERSION,
        "identityPublic": encode_base64url(stored.public.identity),
        "identityPrivate": base64.b64encode(_IDENTITY_HEADER + stored.identity_seed).decode("ascii"),
        "encryptionPublic": encode_base64url(stored.public.encryption),
        "encryptionPrivate": base64.b64encode(_ENCRYPTION_HEADER + stored.encryption_secret).decode("ascii"),
        "encryptionSig": encode_base64url(stored.public.encryption_signature),
        "createdAt": stored.created_at_ms,
    }
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _write_new(path: Path, document: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, MODE)  # whatever the umask took away or the folder's defaults added
        file.write(document)
        file.flush()
        os.fsync(descriptor)


def _place_new(temporary: Path, path: Path) -> None:
    try:
        # A link, unlike a rename, fails when the name is taken: two writers cannot both win.
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no links. The name is then taken first and filled afterwards.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
        temporary.replace(path)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
