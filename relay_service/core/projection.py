"""The projection: every decision of the operator, and the questions that the relay asks of it.

It is replaced as a whole and never patched, so everything here is computed from one
immutable document; answers are cached for the life of that document.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from relay_service.core.identity import PublicIdentity
from relay_service.core.model import Route

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SuccessionLink:
    """A predecessor's signed word that another key follows it."""

    identity: PublicIdentity
    signature: bytes


@dataclass(frozen=True, slots=True)
class ProjectedSite:
    """A registered site; `succeeds` is oldest first, the immediate predecessor last."""

    site_id: str
    identity: PublicIdentity
    succeeds: tuple[SuccessionLink, ...] = ()
    retiring_until_ms: int | None = None

    def acceptable_identities(self, now_ms: int) -> tuple[PublicIdentity, ...]:
        """The current key, and while the window is open every earlier one."""
        if self.retiring_until_ms is None or now_ms >= self.retiring_until_ms:
            return (self.identity,)
        return (self.identity, *(link.identity for link in self.succeeds))

    def acceptable_key_ids(self, now_ms: int) -> frozenset[str]:
        """Key ids that may name this site in a stub or sign for it now."""
        return frozenset(identity.key_id for identity in self.acceptable_identities(now_ms))


@dataclass(frozen=True, slots=True)
class Consent:
    """One person's permission for one site; paused keeps the pin and routes nothing."""

    owner: str
    site_id: str
    paused: bool = False


@dataclass(frozen=True, slots=True)
class ProjectedDevice:
    """An approved device."""

    owner: str
    runner_id: str
    identity: PublicIdentity
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class Roster:
    """People whose jobs may land on its owner's devices; never on the wire."""

    roster_id: str
    owner: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConsentedSite:
    """A site that an owner consents to, as one of the owner's devices may know it."""

    site: ProjectedSite
    awaiting_consent: bool


@dataclass(frozen=True)
class Projection:
    """The document, with indexes. Of duplicates the first one counts."""

    sites: tuple[ProjectedSite, ...] = ()
    consents: tuple[Consent, ...] = ()
    devices: tuple[ProjectedDevice, ...] = ()
    rosters: tuple[Roster, ...] = ()
    revoked: tuple[tuple[str, str], ...] = ()
    revision: int = 0
    _sites: dict[str, ProjectedSite] = field(init=False, repr=False, compare=False)
    _devices: dict[str, ProjectedDevice] = field(init=False, repr=False, compare=False)
    _consents: dict[tuple[str, str], Consent] = field(init=False, repr=False, compare=False)
    _sites_of: dict[str, list[str]] = field(init=False, repr=False, compare=False)
    _members: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _hosts: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _routes: dict[str, frozenset[Route]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assign = object.__setattr__
        assign(self, "_sites", _first((site.site_id, site) for site in self.sites))
        assign(self, "_devices", _first((device.runner_id, device) for device in self.devices))
        revoked = frozenset(self.revoked)
        assign(
            self,
            "_consents",
            _first(
                ((consent.owner, consent.site_id), consent)
                for consent in self.consents
                if (consent.owner, consent.site_id) not in revoked and consent.site_id in self._sites
            ),
        )
        assign(self, "_sites_of", _grouped(self._consents))
        assign(self, "_members", _united((roster.owner, roster.members) for roster in self.rosters))
        assign(
            self,
            "_hosts",
            _united((member, (roster.owner,)) for roster in self.rosters for member in roster.members),
        )
        assign(self, "_routes", {})

    def site(self, site_id: str) -> ProjectedSite | None:
        """A registered site by the operator's name for it."""
        return self._sites.get(site_id)

    def device(self, runner_id: str) -> ProjectedDevice | None:
        """An approved device, revoked ones included."""
        return self._devices.get(runner_id)

    def may_route(self, owner: str, site_id: str) -> bool:
        """A consent stands and is not paused."""
        consent = self._consents.get((owner, site_id))
        return consent is not None and not consent.paused

    def sites_for(self, owner: str) -> tuple[ConsentedSite, ...]:
        """Every site the owner consents to, paused ones included, by name."""
        return tuple(
            ConsentedSite(self._sites[site_id], self._consents[owner, site_id].paused)
            for site_id in sorted(self._sites_of.get(owner, ()))
        )

    def routes_for(self, device_owner: str) -> frozenset[Route]:
        """The (site, owner) pairs that this person's devices may run for now.

        Both people must consent to the same site, neither paused.
        """
        routes = self._routes.get(device_owner)
        if routes is None:
            routes = frozenset(self._compute_routes(device_owner))
            self._routes[device_owner] = routes
        return routes

    def hosts_of(self, route: Route) -> tuple[str, ...]:
        """People whose devices may run this route's team jobs, its own owner first."""
        if not self.may_route(route.owner, route.site_id):
            return ()
        others = (
            host
            for host in self._hosts.get(route.owner, ())
            if host != route.owner and self.may_route(host, route.site_id)
        )
        return (route.owner, *others)

    def _compute_routes(self, device_owner: str) -> Iterable[Route]:
        owners = {device_owner, *self._members.get(device_owner, ())}
        for site_id in self._sites_of.get(device_owner, ()):
            if self.may_route(device_owner, site_id):
                for owner in owners:
                    if self.may_route(owner, site_id):
                        yield Route(site_id, owner)


def _first(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, Value]:
    found: dict[Key, Value] = {}
    for key, value in pairs:
        found.setdefault(key, value)
    return found


def _grouped(consents: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    sites_of: dict[str, list[str]] = {}
    for owner, site_id in consents:
        sites_of.setdefault(owner, []).append(site_id)
    return sites_of


def _united(pairs: Iterable[tuple[str, Iterable[str]]]) -> dict[str, tuple[str, ...]]:
    """All values of a key, each once, in order."""
    united: dict[str, dict[str, None]] = {}
    for key, values in pairs:
        united.setdefault(key, {}).update(dict.fromkeys(values))
    return {key: tuple(values) for key, values in united.items()}
