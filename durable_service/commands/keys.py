"""The keys commands: make a principal's key, show its public half."""

import json
from pathlib import Path

import click

from durable_service.client.principal_key import PrincipalKey, PrincipalKeyError
from durable_service.commands.service_calls import STATUS, as_json

_FILE = click.argument("path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))


@click.group(epilog=STATUS)
def keys() -> None:
    """Make and show the keys that principals sign with."""


@keys.command(epilog=STATUS)
@_FILE
@as_json
def new(path: Path, *, as_json: bool) -> None:
    """Make a new key in FILE, and print the public half for `principals add --key`."""
    key = PrincipalKey.generate()
    try:
        key.save(path)
    except FileExistsError:
        raise click.ClickException(f"{path}: there is a key already; it was left as it is") from None
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be written: {error.strerror}") from None
    _print(key, as_json=as_json)


@keys.command(epilog=STATUS)
@_FILE
@as_json
def show(path: Path, *, as_json: bool) -> None:
    """Print the public half of the key in FILE."""
    try:
        key = PrincipalKey.load(path)
    except PrincipalKeyError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{path}: cannot be read: {error.strerror}") from None
    _print(key, as_json=as_json)


def _print(key: PrincipalKey, *, as_json: bool) -> None:
    click.echo(json.dumps({"public": key.public_text}) if as_json else key.public_text)
