"""Rosters: whose team work may land on whose devices."""

from typing import Any

import click

from relay_service.commands.operator_calls import (
    STATUS,
    OrderedGroup,
    as_json,
    ask,
    change,
    operator_options,
    show_json,
    show_table,
)

_ROSTER_ID = click.argument("roster_id")
_OWNER = click.option("--owner", required=True, metavar="PERSON", help="Whose devices do the work.")


@click.group(cls=OrderedGroup, epilog=STATUS)
def rosters() -> None:
    """Decide whose team work may land on whose devices.

    Work still needs the consent of both people to its site. A device runs it only with "--offer team" and
    with a grant that the relay's policy has signed for the job.
    """


@rosters.command(epilog=STATUS)
@_ROSTER_ID
@_OWNER
@click.option(
    "--member", "members", multiple=True, required=True, metavar="PERSON", help="Whose work; repeat it."
)
@operator_options
def add(roster_id: str, owner: str, members: tuple[str, ...], **options: Any) -> None:
    """Add people to the roster ROSTER_ID, which is made if there is none.

    Whoever owns a device can read the prompts and answers of all work that it does: tell the members so
    before you add them.
    """
    change(options, lambda operator: operator.add_roster_members(roster_id, owner, members))
    people = ", ".join(members)
    click.echo(
        f"{owner} can read the prompts and answers of what {owner}'s devices do for {people}", err=True
    )


@rosters.command(epilog=STATUS)
@_ROSTER_ID
@_OWNER
@click.option("--member", "members", multiple=True, metavar="PERSON", help="Who leaves; repeat it.")
@operator_options
def remove(roster_id: str, owner: str, members: tuple[str, ...], **options: Any) -> None:
    """Take people out of the roster ROSTER_ID; without --member it is deleted."""
    change(options, lambda operator: operator.remove_roster_members(roster_id, owner, members))


@rosters.command("list", epilog=STATUS)
@as_json
@operator_options
def list_rosters(as_json: bool, **options: Any) -> None:  # noqa: FBT001 - click calls it by name
    """List the rosters."""
    found = ask(options, lambda operator: operator.projection()).rosters
    if as_json:
        show_json(
            {"id": each.roster_id, "owner": each.owner, "members": list(each.members)} for each in found
        )
        return
    show_table(
        ("roster", "of", "members"),
        [(each.roster_id, each.owner, ", ".join(each.members)) for each in found],
        "no roster yet: relay-service rosters add ROSTER_ID --owner PERSON --member PERSON",
    )
