"""The projection as people read it."""

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from relay_service.core.projection import Projection


def counts_table(projection: Projection) -> Table:
    """Return how much there is of everything."""
    consents = [(consent.owner, consent.site_id) for consent in projection.consents]
    table = Table("part", "count", "of these")
    table.columns[1].justify = "right"
    rows = (
        ("sites", len(projection.sites), _of(_rotated(projection), "with an earlier key")),
        ("consents", len(consents), _of(sum(each.paused for each in projection.consents), "paused")),
        (
            "devices",
            len(projection.devices),
            _of(sum(each.revoked for each in projection.devices), "revoked"),
        ),
        ("rosters", len(projection.rosters), ""),
        ("revoked consents", len(projection.revoked), ""),
    )
    for part, count, detail in rows:
        table.add_row(part, str(count), detail)
    return table


def detail_tables(projection: Projection) -> Iterable[Table]:
    """Return everything that there is, key ids in the place of keys."""
    yield _table(
        ("site", "key", "earlier keys"),
        (
            (site.site_id, site.identity.key_id, ", ".join(link.identity.key_id for link in site.succeeds))
            for site in projection.sites
        ),
    )
    yield _table(
        ("consent of", "to site", "state"),
        (
            (each.owner, each.site_id, _state(projection, each.owner, each.site_id))
            for each in projection.consents
        ),
    )
    yield _table(
        ("device", "owner", "key", "state"),
        (
            (each.runner_id, each.owner, each.identity.key_id, "revoked" if each.revoked else "approved")
            for each in projection.devices
        ),
    )
    yield _table(
        ("roster", "owner", "members"),
        ((each.roster_id, each.owner, ", ".join(each.members)) for each in projection.rosters),
    )


def oddities(projection: Projection) -> list[str]:
    """Return what is allowed and yet probably not meant, for it makes that no job runs."""
    revoked = set(projection.revoked)
    consenting = {each.owner for each in projection.consents if (each.owner, each.site_id) not in revoked}
    notes = [
        f"the consent of {each.owner} to {each.site_id} has no effect: the pair is under revoked as well"
        for each in projection.consents
        if (each.owner, each.site_id) in revoked
    ]
    notes += [
        f"device {each.runner_id} gets no work: its owner {each.owner} consents to no site"
        for each in projection.devices
        if not each.revoked and each.owner not in consenting
    ]
    return notes


def show(console: Console, tables: Iterable[Table]) -> None:
    """Print the tables that have rows."""
    for table in tables:
        if table.row_count:
            console.print(table)


def _table(headers: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(*headers)
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        # Ids may hold square brackets, which rich reads as markup.
        table.add_row(*(escape(cell) for cell in row))
    return table


def _state(projection: Projection, owner: str, site_id: str) -> str:
    if (owner, site_id) in projection.revoked:
        return "revoked"
    return "given" if projection.may_route(owner, site_id) else "paused"


def _rotated(projection: Projection) -> int:
    return sum(bool(site.succeeds) for site in projection.sites)


def _of(count: int, what: str) -> str:
    return f"{count} {what}" if count else ""
