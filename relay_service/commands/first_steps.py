"""What an operator needs before there is a relay: a key, and for a start on one machine everything."""

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from relay_service.client.keys import Keys
from relay_service.core.projection import Projection
from relay_service.projection_file import format_projection
from service_common.atomic_file import create_file

_STATUS: Final = """\b
Exit status:
  0  done
  1  a file is there already, or cannot be written; nothing was replaced
  2  a wrong option
"""
_KEYS: Final = "operator-keys.json"
_IDENTITY: Final = "operator.json"
_PROJECTION: Final = "projection.json"
_NEXT: Final = """\
{folder} has
  {projection}     every decision of yours; nothing is in it yet
  {keys}  your private key: keep it to yourself
  {identity}       its public half, for the relay

Start the relay in a terminal of its own:
  relay-service serve --dev --projection {projection_path} --operator-identity {identity_path}

Then decide here:
  export RELAY_OPERATOR_KEY={keys_path}
  relay-site identity > site.json
  relay-service sites add demo --identity site.json
  relay-service consents grant --owner alice --site demo

A device of alice's asks to be let in, and you approve the code that it shows:
  relay-daemon pair --relay 127.0.0.1:7433
  relay-service approve CODE --owner alice
"""


@click.command(epilog=_STATUS)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def init(folder: Path) -> None:
    """Make what a relay on one machine needs in FOLDER, and print the next commands.

    That is a projection file, the operator's private key and its public half.
    """
    paths = {name: folder / name for name in (_PROJECTION, _KEYS, _IDENTITY)}
    _refuse_replacing(paths.values())
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_file(paths[_PROJECTION], format_projection(Projection(revision=1)).encode())
        _make_keys(paths[_KEYS], paths[_IDENTITY])
    except OSError as error:
        raise click.ClickException(f"{error.filename or folder}: {error.strerror}") from None
    click.echo(
        _NEXT.format(
            folder=folder,
            projection=_PROJECTION,
            keys=_KEYS,
            identity=_IDENTITY,
            projection_path=shlex.quote(str(paths[_PROJECTION])),
            identity_path=shlex.quote(str(paths[_IDENTITY])),
            keys_path=shlex.quote(str(paths[_KEYS].absolute())),
        ),
        nl=False,
    )


@click.command(epilog=_STATUS)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default=Path(f"~/.sealwork/{_KEYS}"))
def keys(file: Path) -> None:
    """Make an operator's key in FILE, and its public half in a file beside it.

    FILE is ~/.sealwork/operator-keys.json unless it is given. A relay knows the operator by the public half:
    relay-service serve --operator-identity.
    """
    private = file.expanduser()
    public = private.with_name(private.stem.removesuffix("-keys") + ".json")
    if public == private:
        public = private.with_name(f"{private.stem}-public.json")
    _refuse_replacing((private, public))
    try:
        private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = _make_keys(private, public)
    except OSError as error:
        raise click.ClickException(f"{error.filename or private}: {error.strerror}") from None
    click.echo(f"{private}: the private key, to be kept to yourself")
    click.echo(f"{public}: its public half, for relay-service serve --operator-identity")
    click.echo(f"key id {made.key_id}")


def _make_keys(private: Path, public: Path) -> Keys:
    made = Keys.generate()
    made.save(private)
    create_file(public, f"{json.dumps(made.public.to_json(), indent=2)}\n".encode())
    # It is for the relay, which may run as somebody else.
    public.chmod(0o644)
    return made


def _refuse_replacing(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.exists():
            raise click.ClickException(f"{path}: is there already; nothing was made or replaced")
