"""Reading the public identity that a command is given."""

import sys
from pathlib import Path

import click

from relay_service.core.identity import PublicIdentity
from relay_service.identity_file import MAXIMUM_BYTES, IdentityFileError, load_identity, parse_identity


def read_identity_file(name: str) -> PublicIdentity:
    """Read and verify a public identity from a file, or from standard input when the name is `-`.

    Raises:
        click.ClickException: It is not one, in words that tell which field is wrong.
    """
    try:
        if name == "-":
            return parse_identity(sys.stdin.buffer.read(MAXIMUM_BYTES), "standard input")
        return load_identity(Path(name))
    except IdentityFileError as error:
        raise click.ClickException(str(error)) from None
