"""Reading the public identity that a site, a device or an operator has printed."""

from pathlib import Path

from relay_service.core.identity import PUBLIC_KEY_BYTES, PublicIdentity, decode_base64url
from relay_service.projection_fields import Findings, read_identity, show_path
from relay_service.projection_json import JsonError, JsonObject, parse_json

MAXIMUM_BYTES = 65_536


class IdentityFileError(ValueError):
    """What is there is no public identity; the text names the source and the field."""


def load_identity(path: Path) -> PublicIdentity:
    """Read and verify a public identity from a file.

    Raises:
        IdentityFileError: It is not one, in words that tell which field is wrong.
    """
    return parse_identity(_read(path), str(path))


def load_public_key(path: Path) -> bytes:
    """Read an Ed25519 public key, 32 bytes: base64url text alone, or the identity key of a public identity.

    Raises:
        IdentityFileError: It is neither.
    """
    content = _read(path)
    if content.lstrip().startswith(b"{"):
        return parse_identity(content, str(path)).identity
    try:
        key = decode_base64url(content.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != PUBLIC_KEY_BYTES:
        raise IdentityFileError(f"{path}: is neither a public identity nor 32 bytes as base64url")
    return key


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAXIMUM_BYTES)
    except OSError as error:
        raise IdentityFileError(f"{path}: cannot be read: {error.strerror}") from None


def parse_identity(content: bytes, source: str) -> PublicIdentity:
    """Read and verify a public identity.

    Raises:
        IdentityFileError: It is not one, in words that name the source and the field.
    """
    try:
        value = parse_json(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise IdentityFileError(f"{source}: is not UTF-8 text") from None
    except JsonError as error:
        raise IdentityFileError(f"{source}: {error}") from None
    if isinstance(value, JsonObject) and "identityPrivate" in value:
        raise IdentityFileError(
            f"{source}: holds private keys, which no relay may see; give what the identity command prints"
        )
    findings = Findings()
    identity = read_identity(value, (), findings)
    if findings.all:
        path, reason = findings.all[0]
        field = f"{show_path(path)}: " if path else ""
        raise IdentityFileError(f"{source}: {field}{reason}")
    return identity
