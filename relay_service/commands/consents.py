"""Consents: which person lets which site send work in their name."""

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
from relay_service.core.projection import Projection

_OWNER = click.option("--owner", required=True, metavar="PERSON", help="Whose consent it is.")
_SITE = click.option("--site", "site_id", required=True, metavar="ID", help="The site.")


@click.group(cls=OrderedGroup, epilog=STATUS)
def consents() -> None:
    """Decide which person lets which site send work in their name."""


@consents.command(epilog=STATUS)
@_OWNER
@_SITE
@operator_options
def grant(owner: str, site_id: str, **options: Any) -> None:
    """Give a person's consent to a site, also after it was revoked."""
    change(options, lambda operator: operator.grant_consent(owner, site_id))


@consents.command(epilog=STATUS)
@_OWNER
@_SITE
@operator_options
def pause(owner: str, site_id: str, **options: Any) -> None:
    """Route nothing for now; devices keep the site's key pinned."""
    change(options, lambda operator: operator.pause_consent(owner, site_id))


@consents.command(epilog=STATUS)
@_OWNER
@_SITE
@operator_options
def resume(owner: str, site_id: str, **options: Any) -> None:
    """Route again."""
    change(options, lambda operator: operator.resume_consent(owner, site_id))


@consents.command(epilog=STATUS)
@_OWNER
@_SITE
@operator_options
def revoke(owner: str, site_id: str, **options: Any) -> None:
    """End a consent; devices drop the site and stop its work."""
    change(options, lambda operator: operator.revoke_consent(owner, site_id))


@consents.command("list", epilog=STATUS)
@as_json
@operator_options
def list_consents(as_json: bool, **options: Any) -> None:  # noqa: FBT001 - click calls it by name
    """List the consents, those that were revoked last."""
    rows = _rows(ask(options, lambda operator: operator.projection()))
    if as_json:
        show_json({"owner": owner, "siteId": site_id, "state": state} for owner, site_id, state in rows)
        return
    nothing = "no consent yet: relay-service consents grant --owner PERSON --site ID"
    show_table(("consent of", "to site", "state"), rows, nothing)


def _rows(projection: Projection) -> list[tuple[str, str, str]]:
    revoked = set(projection.revoked)
    standing = [
        (each.owner, each.site_id, "paused" if each.paused else "given")
        for each in projection.consents
        if (each.owner, each.site_id) not in revoked
    ]
    return [*standing, *((owner, site_id, "revoked") for owner, site_id in projection.revoked)]
