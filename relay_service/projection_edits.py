"""Single decisions of an operator as changes of the projection.

Each function answers with the projection as it would be and a line that says what changed; an edit that finds
everything as wanted already answers with an equal projection. The rules that hold for any projection are left
to whoever checks the result as a whole.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from relay_service.core.identity import PublicIdentity
from relay_service.core.projection import (
    Consent,
    ProjectedDevice,
    ProjectedSite,
    Projection,
    Roster,
    SuccessionLink,
)

_LABEL_CHARACTERS = 40


class EditError(ValueError):
    """The edit does not apply. The text says why and what to do instead."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A projection after an edit, and the edit in words."""

    projection: Projection
    summary: str


def add_site(projection: Projection, site_id: str, identity: PublicIdentity) -> Edit:
    """Register a site.

    Raises:
        EditError: It is registered with another key.
    """
    site = projection.site(site_id)
    if site is None:
        sites = (*projection.sites, ProjectedSite(site_id, identity))
        return Edit(replace(projection, sites=sites), f"site {site_id} added with key {identity.key_id}")
    if site.identity != identity:
        raise EditError(
            f"site {site_id} is registered with another key, {site.identity.key_id}; for a new key, use "
            "relay-service sites rotate, or edit the file: put the old key and its signed succession under "
            "succeeds, and the new key under site"
        )
    return Edit(projection, f"site {site_id} is registered with this key")


def remove_site(projection: Projection, site_id: str) -> Edit:
    """Take a site out, and every consent to it."""
    if projection.site(site_id) is None:
        return Edit(projection, f"no site has the id {site_id}")
    sites = tuple(site for site in projection.sites if site.site_id != site_id)
    consents = tuple(consent for consent in projection.consents if consent.site_id != site_id)
    count = len(projection.consents) - len(consents)
    without = f", and with it {count} consent{'s' if count != 1 else ''}" if count else ""
    return Edit(replace(projection, sites=sites, consents=consents), f"site {site_id} removed{without}")


def rotate_site(
    projection: Projection,
    site_id: str,
    identity: PublicIdentity,
    signature: bytes,
    retiring_until_ms: int | None,
) -> Edit:
    """Move a site to a new key, for which its present key vouches by that signature.

    Args:
        retiring_until_ms: Until then, in epoch ms, earlier keys still count; None means no longer.

    Raises:
        EditError: There is no such site.
    """
    _require_site(projection, site_id)
    sites = tuple(
        _rotated(site, identity, signature, retiring_until_ms) if site.site_id == site_id else site
        for site in projection.sites
    )
    if sites == projection.sites:
        return Edit(projection, f"site {site_id} has the key {identity.key_id}")
    return Edit(replace(projection, sites=sites), f"site {site_id} moved to the key {identity.key_id}")


def _rotated(
    site: ProjectedSite, identity: PublicIdentity, signature: bytes, retiring_until_ms: int | None
) -> ProjectedSite:
    if site.identity == identity:
        # Asked again; only how long the earlier keys count may differ.
        return replace(site, retiring_until_ms=retiring_until_ms)
    succeeds = (*site.succeeds, SuccessionLink(site.identity, signature))
    return ProjectedSite(site.site_id, identity, succeeds, retiring_until_ms)


def add_device(projection: Projection, runner_id: str, owner: str, identity: PublicIdentity) -> Edit:
    """Approve a device of an owner.

    Raises:
        EditError: There is a device of this id that is revoked, or has another owner or key.
    """
    device = projection.device(runner_id)
    wanted = ProjectedDevice(owner, runner_id, identity)
    if device is None:
        devices = (*projection.devices, wanted)
        summary = f"device {runner_id} of {owner} added with key {identity.key_id}"
        return Edit(replace(projection, devices=devices), summary)
    if device.revoked:
        raise EditError(f"device {runner_id} is revoked for ever: give it new keys and another runner id")
    if device != wanted:
        raise EditError(
            f"runner id {runner_id} belongs to a device of {device.owner} with key "
            f"{device.identity.key_id}: choose another"
        )
    return Edit(projection, f"device {runner_id} is approved")


def pair_device(projection: Projection, owner: str, identity: PublicIdentity, label: str) -> tuple[str, Edit]:
    """Approve a device under a runner id that is minted from its label and its key.

    Returns:
        The runner id, which is the one that it has when it is approved already, and the edit.

    Raises:
        EditError: The key belongs to a device that is another person's or is revoked.
    """
    for device in projection.devices:
        if device.identity.identity == identity.identity:
            if device.revoked:
                raise EditError(f"device {device.runner_id} has this key and is revoked: it needs new keys")
            if (device.owner, device.identity) != (owner, identity):
                raise EditError(f"this key belongs to device {device.runner_id} of {device.owner}")
            return device.runner_id, Edit(projection, f"device {device.runner_id} of {owner} is approved")
    runner_id = _mint_runner_id(projection, identity, label)
    return runner_id, add_device(projection, runner_id, owner, identity)


def _mint_runner_id(projection: Projection, identity: PublicIdentity, label: str) -> str:
    """The label, as far as an id can hold it, and enough of the key id to be unique."""
    name = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:_LABEL_CHARACTERS].rstrip("-")
    groups = identity.key_id.lower().split("-")[1:]
    named = (f"{name or 'device'}-{'-'.join(groups[:count])}" for count in range(1, len(groups) + 1))
    return next(runner_id for runner_id in named if projection.device(runner_id) is None)


def revoke_device(projection: Projection, runner_id: str) -> Edit:
    """Shut a device out for ever.

    Raises:
        EditError: There is no such device.
    """
    device = projection.device(runner_id)
    if device is None:
        raise EditError(f"no device has the runner id {runner_id}")
    devices = tuple(
        replace(each, revoked=True) if each.runner_id == runner_id else each for each in projection.devices
    )
    if device.revoked:
        return Edit(projection, f"device {runner_id} is revoked")
    return Edit(replace(projection, devices=devices), f"device {runner_id} of {device.owner} revoked")


def grant_consent(projection: Projection, owner: str, site_id: str) -> Edit:
    """Let a site send work in the name of an owner; this also ends an earlier revocation.

    Raises:
        EditError: There is no such site, or the consent is paused.
    """
    _require_site(projection, site_id)
    consent = _consent(projection, owner, site_id)
    pair = (owner, site_id)
    if consent is not None and pair not in projection.revoked:
        if consent.paused:
            raise EditError(f"{owner} has consented to {site_id} and paused it: resume it")
        return Edit(projection, f"{owner} has consented to {site_id}")
    consents = (*(each for each in projection.consents if each is not consent), Consent(owner, site_id))
    revoked = tuple(each for each in projection.revoked if each != pair)
    summary = f"{owner} consents to {site_id}"
    return Edit(replace(projection, consents=consents, revoked=revoked), summary)


def pause_consent(projection: Projection, owner: str, site_id: str, *, paused: bool) -> Edit:
    """Stop or take up routing between an owner and a site; devices keep the site's key pinned.

    Raises:
        EditError: There is no such site, or the owner does not consent to it.
    """
    _require_site(projection, site_id)
    consent = _consent(projection, owner, site_id)
    if consent is None or (owner, site_id) in projection.revoked:
        raise EditError(f"{owner} does not consent to {site_id}: give the consent first")
    wanted = Consent(owner, site_id, paused)
    consents = tuple(wanted if each is consent else each for each in projection.consents)
    done = "paused" if paused else "resumed"
    return Edit(replace(projection, consents=consents), f"consent of {owner} to {site_id} {done}")


def revoke_consent(projection: Projection, owner: str, site_id: str) -> Edit:
    """End a consent.

    Raises:
        EditError: There is none.
    """
    consent = _consent(projection, owner, site_id)
    pair = (owner, site_id)
    if consent is None:
        if pair in projection.revoked:
            return Edit(projection, f"the consent of {owner} to {site_id} is revoked")
        raise EditError(f"{owner} has not consented to {site_id}")
    consents = tuple(each for each in projection.consents if each is not consent)
    revoked = projection.revoked if pair in projection.revoked else (*projection.revoked, pair)
    summary = f"consent of {owner} to {site_id} revoked"
    return Edit(replace(projection, consents=consents, revoked=revoked), summary)


def set_roster(projection: Projection, roster_id: str, owner: str, members: Sequence[str]) -> Edit:
    """Let an owner's devices run the team work of these people, and of nobody else by this roster."""
    wanted = Roster(roster_id, owner, tuple(dict.fromkeys(members)))
    others = tuple(each for each in projection.rosters if (each.owner, each.roster_id) != (owner, roster_id))
    summary = f"roster {roster_id} of {owner}: {', '.join(wanted.members)}"
    if wanted in projection.rosters:
        return Edit(projection, summary)
    return Edit(replace(projection, rosters=(*others, wanted)), summary)


def add_roster_members(projection: Projection, roster_id: str, owner: str, members: Sequence[str]) -> Edit:
    """Let an owner's devices run the team work of more people."""
    known = _members(projection, roster_id, owner) or ()
    return set_roster(projection, roster_id, owner, (*known, *members))


def remove_roster_members(projection: Projection, roster_id: str, owner: str, members: Sequence[str]) -> Edit:
    """Take people out of a roster; without anybody left, or without a name given, it is deleted."""
    known = _members(projection, roster_id, owner)
    if known is None:
        return Edit(projection, f"{owner} has no roster {roster_id}")
    rest = [member for member in known if member not in members] if members else []
    if not rest:
        return remove_roster(projection, roster_id, owner)
    return set_roster(projection, roster_id, owner, rest)


def remove_roster(projection: Projection, roster_id: str, owner: str) -> Edit:
    """Delete a roster.

    Raises:
        EditError: There is none.
    """
    others = tuple(each for each in projection.rosters if (each.owner, each.roster_id) != (owner, roster_id))
    if len(others) == len(projection.rosters):
        raise EditError(f"{owner} has no roster {roster_id}")
    return Edit(replace(projection, rosters=others), f"roster {roster_id} of {owner} removed")


def _members(projection: Projection, roster_id: str, owner: str) -> tuple[str, ...] | None:
    pair = (owner, roster_id)
    return next((each.members for each in projection.rosters if (each.owner, each.roster_id) == pair), None)


def _require_site(projection: Projection, site_id: str) -> None:
    if projection.site(site_id) is None:
        known = ", ".join(sorted(site.site_id for site in projection.sites)[:10]) or "none yet"
        raise EditError(f"no site has the id {site_id} (registered: {known}); add it first")


def _consent(projection: Projection, owner: str, site_id: str) -> Consent | None:
    """The consent as it is written, whether or not it is revoked."""
    pair = (owner, site_id)
    return next((each for each in projection.consents if (each.owner, each.site_id) == pair), None)
