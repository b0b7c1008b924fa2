"""Rules of a projection that concern more than one of its values."""

from collections.abc import Iterable

from relay_service.core.limits import SUCCESSION_LINKS
from relay_service.core.projection import ProjectedSite, Projection
from relay_service.projection_fields import NO_IDENTITY, Findings, show_path, suggestion
from relay_service.projection_json import Path
from service_common.verification import verify_signature

_SUCCESSION_DOMAIN = "byollm/v1/site-succession"
# Each offer of a correction compares all ids, and nobody reads thousands of them.
_SUGGESTIONS = 20


def check_projection(projection: Projection, findings: Findings) -> None:
    """Note every rule that the values break together; stand-ins for bad values are passed over."""
    _check_sites(projection, findings)
    _check_consents(projection, findings)
    _check_devices(projection, findings)
    rosters = [(roster.owner, roster.roster_id) for roster in projection.rosters]
    _check_repeats("rosters", (), rosters, "an owner has one roster of an id", findings)


def _check_sites(projection: Projection, findings: Findings) -> None:
    ids = [(site.site_id,) for site in projection.sites]
    _check_repeats("sites", ("siteId",), ids, "a site is listed once", findings)
    keys = [(site.identity.identity,) for site in projection.sites]
    _check_repeats("sites", ("site", "identity"), keys, "two sites cannot share a key", findings)
    for index, site in enumerate(projection.sites):
        _check_succession(site, ("sites", index, "succeeds"), findings)


def _check_devices(projection: Projection, findings: Findings) -> None:
    ids = [(device.runner_id,) for device in projection.devices]
    _check_repeats("devices", ("runnerId",), ids, "a device is listed once", findings)
    keys = [(device.identity.identity,) for device in projection.devices]
    _check_repeats("devices", ("device", "identity"), keys, "two devices cannot share a key", findings)


def _check_consents(projection: Projection, findings: Findings) -> None:
    pairs = [(consent.owner, consent.site_id) for consent in projection.consents]
    _check_repeats("consents", (), pairs, "an owner has one consent to a site", findings)
    site_ids = {site.site_id for site in projection.sites}
    if "" in site_ids or findings.concern(("sites",)):
        # Some site has no readable id: it may be the one that is meant.
        return
    offers = 0
    for index, consent in enumerate(projection.consents):
        if consent.site_id and consent.site_id not in site_ids:
            offer = suggestion(consent.site_id, site_ids) if offers < _SUGGESTIONS else ""
            offers += 1
            findings.note(("consents", index, "siteId"), f"is the id of no site in this file{offer}")


def _check_repeats(
    part: str, field: Path, values: Iterable[tuple[str | bytes, ...]], meaning: str, findings: Findings
) -> None:
    first: dict[tuple[str | bytes, ...], int] = {}
    for index, value in enumerate(values):
        if all(value) and first.setdefault(value, index) != index:
            earlier = show_path((part, first[value], *field))
            findings.note((part, index, *field), f"repeats {earlier}; {meaning}")


def _check_succession(site: ProjectedSite, path: Path, findings: Findings) -> None:
    """Follow the chain from the oldest key to the current one."""
    chain = (*(link.identity for link in site.succeeds), site.identity)
    if NO_IDENTITY in chain or len(site.succeeds) > SUCCESSION_LINKS:
        return
    for index, link in enumerate(site.succeeds):
        heir = chain[index + 1].key_id
        statement = f"{_SUCCESSION_DOMAIN}:{link.identity.key_id}:{heir}".encode("ascii")
        if link.signature and not verify_signature(link.identity.identity, statement, link.signature):
            reason = f"does not vouch for {heir}, the next key (order: oldest first, the current key follows)"
            findings.note((*path, index, "signature"), reason)
        # A key that comes back later in its own chain would make "predecessor" mean nothing.
        if any(link.identity.identity == later.identity for later in chain[index + 1 :]):
            findings.note((*path, index, "identity"), "comes back later in the chain")
