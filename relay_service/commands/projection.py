"""Looking at a projection file and changing it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import click

from relay_service import projection_edits as edits
from relay_service.commands.identity_file import read_identity_file
from relay_service.core.projection import Projection
from relay_service.projection_file import (
    ProjectionError,
    format_projection,
    load_projection,
    parse_projection,
)
from service_common.atomic_file import create_file, locked_folder, replace_file

_STATUS = """\b
Exit status:
  0  done, or nothing had to be changed
  1  the file or the change is not valid; nothing was written
  2  a wrong option
"""
_FILE = click.argument("file", type=click.Path(path_type=Path))
_SITE_ID = click.option("--site-id", required=True, metavar="ID", help="The site's id, printable ASCII.")
_RUNNER_ID = click.option(
    "--runner-id", required=True, metavar="ID", help="The device's id, printable ASCII."
)
_OWNER = click.option("--owner", required=True, metavar="PERSON", help="Whose decision or device it is.")


class _Group(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        """In the order in which a newcomer needs them."""
        return list(self.commands)


@click.group(cls=_Group, epilog=_STATUS)
def projection() -> None:
    """Look at the projection file and change it.

    It holds every decision of the operator: which sites and devices there are, who consents to which site,
    and whose devices may run whose work. Each change is checked as a whole, written in one step and raises
    the revision; a relay that serves with the file has it in force within a second.
    """


@projection.command(epilog=_STATUS)
@_FILE
def new(file: Path) -> None:
    """Make a projection file with nothing in it."""
    try:
        create_file(file, format_projection(Projection(revision=1)).encode())
    except FileExistsError:
        _fail(f"{file}: is there already and was left as it is")
    except OSError as error:
        _fail(f"{file}: cannot be written: {error.strerror}")
    click.echo(f"{file}: revision 1: made, with nothing in it")


@projection.command(epilog=_STATUS)
@_FILE
def check(file: Path) -> None:
    """Check a projection file and count what is in it.

    What is wrong is printed as FILE:LINE: FIELD: REASON.
    """
    from rich.console import Console  # noqa: PLC0415 - edits do not need it

    from relay_service.commands.projection_view import counts_table, oddities  # noqa: PLC0415

    checked = _load(file)
    click.echo(f"{file}: valid, revision {checked.revision}")
    Console().print(counts_table(checked))
    for note in oddities(checked):
        click.echo(f"note: {note}")


@projection.command(epilog=_STATUS)
@_FILE
def show(file: Path) -> None:
    """Show what is in a projection file."""
    from rich.console import Console  # noqa: PLC0415

    from relay_service.commands import projection_view  # noqa: PLC0415

    shown = _load(file)
    click.echo(f"{file}: revision {shown.revision}")
    projection_view.show(Console(), projection_view.detail_tables(shown))


@projection.command("add-site", epilog=_STATUS)
@_FILE
@_SITE_ID
@click.option(
    "--identity", required=True, metavar="FILE", help='What "relay-site identity" prints; - for stdin.'
)
def add_site(file: Path, site_id: str, identity: str) -> None:
    """Register a site by its public identity."""
    public = read_identity_file(identity)
    _edit(file, lambda current: edits.add_site(current, site_id, public))


@projection.command("add-device", epilog=_STATUS)
@_FILE
@_RUNNER_ID
@_OWNER
@click.option(
    "--identity", required=True, metavar="FILE", help='What "relay-daemon identity" prints; - for stdin.'
)
def add_device(file: Path, runner_id: str, owner: str, identity: str) -> None:
    """Approve a device by its public identity."""
    public = read_identity_file(identity)
    _edit(file, lambda current: edits.add_device(current, runner_id, owner, public))


@projection.command(epilog=_STATUS)
@_FILE
@_OWNER
@_SITE_ID
@click.option("--pause", is_flag=True, help="Route nothing for now; devices keep the site's key pinned.")
@click.option("--resume", is_flag=True, help="Route again.")
@click.option("--revoke", is_flag=True, help="End the consent.")
def consent(file: Path, owner: str, site_id: str, *, pause: bool, resume: bool, revoke: bool) -> None:
    """Give, pause, resume or revoke a person's consent to a site.

    Without --pause, --resume or --revoke it gives the consent, also after it was revoked.
    """
    if pause + resume + revoke > 1:
        raise click.UsageError("give one of --pause, --resume and --revoke")

    def change(current: Projection) -> edits.Edit:
        if revoke:
            return edits.revoke_consent(current, owner, site_id)
        if pause or resume:
            return edits.pause_consent(current, owner, site_id, paused=pause)
        return edits.grant_consent(current, owner, site_id)

    _edit(file, change)


@projection.command("revoke-device", short_help="Shut a device out for ever.", epilog=_STATUS)
@_FILE
@_RUNNER_ID
def revoke_device(file: Path, runner_id: str) -> None:
    """Shut a device out for ever; its work goes back to the queue."""
    _edit(file, lambda current: edits.revoke_device(current, runner_id))


@projection.command(epilog=_STATUS)
@_FILE
@click.option("--id", "roster_id", required=True, metavar="ID", help="The owner's name for the roster.")
@click.option("--owner", required=True, metavar="PERSON", help="Whose devices do the work.")
@click.option("--member", "members", multiple=True, metavar="PERSON", help="Whose work it may be; repeat it.")
@click.option("--remove", is_flag=True, help="Delete the roster.")
def roster(file: Path, roster_id: str, owner: str, members: tuple[str, ...], *, remove: bool) -> None:
    """Set whose team work an owner's devices may run.

    The members given replace those that the roster has. Work still needs the consent of both people to its
    site.
    """
    if remove == bool(members):
        raise click.UsageError("name everybody with --member, or give --remove alone to delete the roster")
    if remove:
        _edit(file, lambda current: edits.remove_roster(current, roster_id, owner))
    else:
        _edit(file, lambda current: edits.set_roster(current, roster_id, owner, members))


def _edit(file: Path, change: Callable[[Projection], edits.Edit]) -> None:
    _require(file)
    try:
        with locked_folder(file):
            current = _load(file)
            edit = change(current)
            if edit.projection == current:
                click.echo(f"{file}: revision {current.revision}: nothing to change: {edit.summary}")
                return
            revised = replace(edit.projection, revision=current.revision + 1)
            replace_file(file, _checked_text(revised, current).encode())
    except edits.EditError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{file}: cannot be written: {error.strerror}")
    click.echo(f"{file}: revision {revised.revision}: {edit.summary}")


def _checked_text(revised: Projection, current: Projection) -> str:
    """Return the text to write, after reading it as the relay will."""
    text = format_projection(revised)
    try:
        parse_projection(text, "", current)
    except ProjectionError as error:
        # Without lines: they would be those of a file that was never written.
        _fail("\n".join(f"{problem.field}: {problem.reason}" for problem in error.problems))
    return text


def _require(file: Path) -> None:
    try:
        file.stat()
    except FileNotFoundError:
        _fail(f"{file}: does not exist; make it with: relay-service projection new {file}")
    except OSError as error:
        _fail(f"{file}: cannot be read: {error.strerror}")


def _load(file: Path) -> Projection:
    _require(file)
    try:
        return load_projection(file)
    except ProjectionError as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    for line in message.splitlines():
        click.echo(f"Error: {line}", err=True)
    raise click.exceptions.Exit(1)
