"""What changed between two projections, in words."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from relay_service.core.projection import Consent, ProjectedDevice, ProjectedSite, Projection, Roster

Key = TypeVar("Key")
Value = TypeVar("Value")

# The rest is counted: a whole file that is replaced is not told line by line.
SHOWN = 20


def differences(old: Projection, new: Projection) -> list[str]:
    """Return a line for each difference, at most `SHOWN` and one that counts the others."""
    lines = list(_lines(old, new))
    if len(lines) > SHOWN:
        return [*lines[:SHOWN], f"and {len(lines) - SHOWN} more"]
    return lines


def _lines(old: Projection, new: Projection) -> Iterator[str]:
    yield from _site_lines(old, new)
    yield from _device_lines(old, new)
    yield from _consent_lines(old, new)
    yield from _roster_lines(old, new)


def _site_lines(old: Projection, new: Projection) -> Iterator[str]:
    for before, after in _pairs(_sites(old), _sites(new)):
        if before is None and after is not None:
            yield f"site {after.site_id} added with key {after.identity.key_id}"
        elif before is not None and after is None:
            yield f"site {before.site_id} removed"
        elif before is not None and after is not None:
            if before.identity != after.identity:
                yield f"site {after.site_id} has the key {after.identity.key_id}"
            else:
                yield f"earlier keys of site {after.site_id} changed"


def _device_lines(old: Projection, new: Projection) -> Iterator[str]:
    for before, after in _pairs(_devices(old), _devices(new)):
        if before is None and after is not None:
            state = "added" if not after.revoked else "added as revoked"
            yield f"device {after.runner_id} of {after.owner} {state} with key {after.identity.key_id}"
        elif before is not None and after is None:
            yield f"device {before.runner_id} of {before.owner} removed"
        elif before is not None and after is not None:
            yield from _changed_device(before, after)


def _changed_device(before: ProjectedDevice, after: ProjectedDevice) -> Iterator[str]:
    if before.revoked != after.revoked:
        yield f"device {after.runner_id} of {after.owner} {'revoked' if after.revoked else 'admitted again'}"
    if before.owner != after.owner:
        yield f"device {after.runner_id} belongs to {after.owner}, no more to {before.owner}"
    if before.identity != after.identity:
        yield f"device {after.runner_id} has the key {after.identity.key_id}"


def _consent_lines(old: Projection, new: Projection) -> Iterator[str]:
    for before, after in _pairs(_consents(old), _consents(new)):
        consent = after or before
        if consent is None:
            continue
        pair = f"{consent.owner} to {consent.site_id}"
        if after is None:
            yield f"consent of {pair} removed"
        elif before is None:
            yield f"consent of {pair} given{' and paused' if after.paused else ''}"
        else:
            yield f"consent of {pair} {'paused' if after.paused else 'resumed'}"
    earlier, later = set(old.revoked), set(new.revoked)
    for owner, site_id in new.revoked:
        if (owner, site_id) not in earlier:
            yield f"consent of {owner} to {site_id} revoked"
    for owner, site_id in old.revoked:
        if (owner, site_id) not in later:
            yield f"revocation of {owner}'s consent to {site_id} lifted"


def _roster_lines(old: Projection, new: Projection) -> Iterator[str]:
    for before, after in _pairs(_rosters(old), _rosters(new)):
        if after is not None:
            yield f"roster {after.roster_id} of {after.owner}: {', '.join(after.members) or 'nobody'}"
        elif before is not None:
            yield f"roster {before.roster_id} of {before.owner} removed"


def _pairs(old: Mapping[Key, Value], new: Mapping[Key, Value]) -> Iterable[tuple[Value | None, Value | None]]:
    """What differs under each key, what is there no more last."""
    for key, value in new.items():
        before = old.get(key)
        if before != value:
            yield before, value
    for key, value in old.items():
        if key not in new:
            yield value, None


def _sites(projection: Projection) -> dict[str, ProjectedSite]:
    return {site.site_id: site for site in projection.sites}


def _devices(projection: Projection) -> dict[str, ProjectedDevice]:
    return {device.runner_id: device for device in projection.devices}


def _consents(projection: Projection) -> dict[tuple[str, str], Consent]:
    return {(consent.owner, consent.site_id): consent for consent in projection.consents}


def _rosters(projection: Projection) -> dict[tuple[str, str], Roster]:
    return {(roster.owner, roster.roster_id): roster for roster in projection.rosters}
