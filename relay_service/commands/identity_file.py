"""Reading the public identity that a site or device has printed."""

import sys
from pathlib import Path

import click

from relay_service.core.identity import PublicIdentity
from relay_service.projection_fields import Findings, read_identity, show_path
from relay_service.projection_json import JsonError, JsonObject, parse_json

_MAXIMUM_BYTES = 65_536


def read_identity_file(name: str) -> PublicIdentity:
    """Read and verify a public identity from a file, or from standard input when the name is `-`.

    Raises:
        click.ClickException: It is not one, in words that tell which field is wrong.
    """
    source = "standard input" if name == "-" else name
    try:
        value = parse_json(_read(name).decode("utf-8"))
    except OSError as error:
        raise click.ClickException(f"{source}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.ClickException(f"{source}: is not UTF-8 text") from None
    except JsonError as error:
        raise click.ClickException(f"{source}: {error}") from None
    if isinstance(value, JsonObject) and "identityPrivate" in value:
        raise click.ClickException(
            f"{source}: holds private keys, which no relay may see; give what the identity command prints"
        )
    findings = Findings()
    identity = read_identity(value, (), findings)
    if findings.all:
        path, reason = findings.all[0]
        field = f"{show_path(path)}: " if path else ""
        raise click.ClickException(f"{source}: {field}{reason}")
    return identity


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read(_MAXIMUM_BYTES)
    with Path(name).open("rb") as file:
        return file.read(_MAXIMUM_BYTES)
