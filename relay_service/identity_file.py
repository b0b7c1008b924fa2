"""Reading the public identity that a site, a device or an operator has printed."""

from pathlib import Path

from relay_service.core.identity import PublicIdentity
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
    try:
        with path.open("rb") as file:
            content = file.read(MAXIMUM_BYTES)
    except OSError as error:
        raise IdentityFileError(f"{path}: cannot be read: {error.strerror}") from None
    return parse_identity(content, str(path))


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
