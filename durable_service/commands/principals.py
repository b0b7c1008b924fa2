"""The principals file, edited without an editor."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

import click
import orjson
from rich.console import Console
from rich.table import Table

from durable_service.principals import EVERY_DRIVER, Principal, Principals, Role
from durable_service.principals_file import (
    PrincipalsError,
    decode_key,
    encode_key,
    format_principals,
    load_principals,
    parse_principals,
)
from service_common.atomic_file import create_file, locked_folder, replace_file

_STATUS: Final = """\b
Exit status:
  0  done
  1  the file cannot be read or written, or the principals would not be usable; nothing was changed
  2  a wrong option
"""
_ID = click.argument("principal_id", metavar="ID")
Returned = TypeVar("Returned")
Rest = ParamSpec("Rest")


def _with_file(command: Callable[Concatenate[Path, Rest], Returned]) -> Callable[Rest, Returned]:
    """Gives a command the file; whoever only asks for help need not name one."""

    @wraps(command)
    def run(*args: Rest.args, **options: Rest.kwargs) -> Returned:
        path = click.get_current_context().obj
        if path is None:
            raise click.UsageError(
                "which file? give --file FILE before the command, or set DURABLE_PRINCIPALS"
            )
        return command(path, *args, **options)

    return run


@click.group(epilog=_STATUS)
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="DURABLE_PRINCIPALS",
    help="The principals file; made if it is not there. [DURABLE_PRINCIPALS]",
)
@click.pass_context
def principals(context: click.Context, path: Path | None) -> None:
    """Say who may call the service, as whom, and what for.

    A service that is running has a change in force within a second.
    """
    context.obj = path


@principals.command(epilog=_STATUS)
@_ID
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    type=click.Choice([str(role) for role in Role]),
    help="What it may do; several times for several. A worker can never be an approver.",
)
@click.option("--tenant", required=True, metavar="ID", help="Whose tasks it works on.")
@click.option("--actor", metavar="ID", help="Whom it acts for; the principal's own id if not given.")
@click.option("--key", metavar="PUBLIC_KEY", help="Its Ed25519 public key, as base64url.")
@click.option("--spiffe-id", metavar="URI", help="Of its client certificate, in place of a key.")
@click.option(
    "--driver",
    "drivers",
    multiple=True,
    metavar="DRIVER",
    help=f'For a worker: ID, ID@VERSION, or "{EVERY_DRIVER}" for everything; several times for several.',
)
@_with_file
def add(
    path: Path,
    principal_id: str,
    roles: tuple[str, ...],
    tenant: str,
    actor: str | None,
    key: str | None,
    spiffe_id: str | None,
    drivers: tuple[str, ...],
) -> None:
    """Add the principal ID."""
    decoded = None if key is None else decode_key(key)
    if key is not None and decoded is None:
        raise click.UsageError("--key: is no Ed25519 public key: write its 32 bytes as base64url")
    principal = Principal(
        principal_id,
        tenant,
        actor or principal_id,
        frozenset(map(Role, roles)),
        decoded,
        spiffe_id,
        frozenset(drivers),
    )

    def edit(present: Principals) -> Principals:
        if present.get(principal_id) is not None:
            raise click.ClickException(f"{principal_id}: is there already; remove it first")
        return Principals.of([*present.by_id.values(), principal])

    _edit(path, edit)


@principals.command(epilog=_STATUS)
@_ID
@_with_file
def remove(path: Path, principal_id: str) -> None:
    """Remove the principal ID; its streams end at once."""

    def edit(present: Principals) -> Principals:
        _require(present, principal_id)
        return Principals.of(each for each in present.by_id.values() if each.id != principal_id)

    _edit(path, edit)


@principals.command(epilog=_STATUS)
@_ID
@_with_file
def disable(path: Path, principal_id: str) -> None:
    """Cut the principal ID off: it is told so, and its streams end at once."""
    _change(path, principal_id, disabled=True)


@principals.command(epilog=_STATUS)
@_ID
@_with_file
def enable(path: Path, principal_id: str) -> None:
    """Let the principal ID in again."""
    _change(path, principal_id, disabled=False)


@principals.command("list", epilog=_STATUS)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one principal a line.")
@_with_file
def list_principals(path: Path, as_json: bool) -> None:  # noqa: FBT001 - click calls it by name
    """List the principals."""
    found = [each for _, each in sorted(_load(path).by_id.items())]
    if as_json:
        for principal in found:
            click.echo(orjson.dumps(_shown(principal)).decode())
        return
    table = Table("principal", "tenant", "actor", "roles", "drivers", "state", box=None)
    for principal in found:
        table.add_row(
            principal.id,
            principal.tenant_id,
            principal.actor_id,
            ", ".join(sorted(principal.roles)),
            ", ".join(sorted(principal.drivers)),
            "disabled" if principal.disabled else "",
        )
    Console().print(table)


def _shown(principal: Principal) -> dict[str, object]:
    return {
        "id": principal.id,
        "tenant": principal.tenant_id,
        "actor": principal.actor_id,
        "roles": sorted(principal.roles),
        "key": None if principal.key is None else encode_key(principal.key),
        "spiffeId": principal.spiffe_id,
        "drivers": sorted(principal.drivers),
        "disabled": principal.disabled,
    }


def _change(path: Path, principal_id: str, *, disabled: bool) -> None:
    def edit(present: Principals) -> Principals:
        changed = replace(_require(present, principal_id), disabled=disabled)
        return Principals.of(changed if each.id == principal_id else each for each in present.by_id.values())

    _edit(path, edit)


def _require(present: Principals, principal_id: str) -> Principal:
    principal = present.get(principal_id)
    if principal is None:
        raise click.ClickException(f"{principal_id}: there is no such principal; see the list")
    return principal


def _edit(path: Path, edit: Callable[[Principals], Principals]) -> None:
    try:
        with locked_folder(path):
            exists = path.exists()
            content = format_principals(edit(_load(path) if exists else Principals()))
            # Read as the service will read it: what it would refuse is not written.
            parse_principals(content, str(path))
            if exists:
                replace_file(path, content)
            else:
                create_file(path, content)
    except PrincipalsError as error:
        raise click.ClickException(str(error).splitlines()[0]) from None
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None


def _load(path: Path) -> Principals:
    try:
        return load_principals(path)
    except PrincipalsError as error:
        raise click.ClickException(str(error).splitlines()[0]) from None
