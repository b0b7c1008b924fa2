"""What the policy decides, and from which files: pure but for reading them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

TEAM = "team"


class Slot(StrEnum):
    """Whether a need can be met at all."""

    OK = "ok"
    NOT_DECLARED = "not-declared"
    UNMAPPED = "unmapped"


class No(StrEnum):
    """Why a device does not get what it has won. The relay is told only whether it is for ever."""

    NOT_CONSENTED = "not-consented"
    CONSENT_PAUSED = "consent-paused"
    NOT_A_MEMBER = "not-a-member"
    UNMAPPED = "unmapped"
    RESOLVED_ELSEWHERE = "resolved-elsewhere"

    @property
    def permanent(self) -> bool:
        return self in {No.NOT_CONSENTED, No.NOT_A_MEMBER}


@dataclass(frozen=True)
class Need:
    """Work of a kind for a purpose, for one person at one site."""

    site_id: str
    owner: str
    purpose: str
    kind: str


@dataclass(frozen=True)
class Offer:
    """One service that a device offers for a kind, and to whom: `private` or `team`."""

    kind: str
    service: str
    scope: str


class Policy:
    """The operator's decisions, read again whenever one of the files has changed.

    `policy.json` says what each site has declared and which service each person has chosen for it.
    Consents and rosters are those of the relay's own projection file.
    """

    def __init__(self, policy: Path, projection: Path) -> None:
        self._files = (policy, projection)
        self._read_at: tuple[int, ...] = ()
        self._policy: dict[str, Any] = {}
        self._projection: dict[str, Any] = {}
        self.refresh()

    def refresh(self) -> None:
        """Raises OSError or ValueError for files that cannot be used."""
        changed_at = tuple(file.stat().st_mtime_ns for file in self._files)
        if changed_at != self._read_at:
            self._policy, self._projection = (json.loads(file.read_bytes()) for file in self._files)
            self._read_at = changed_at

    def check_slot(self, need: Need) -> Slot:
        declared = self._policy["sites"].get(need.site_id)
        if declared is not None and need.purpose not in declared["purposes"]:
            return Slot.NOT_DECLARED
        # Whether the chosen service is there now is not known here. One that asks the relay's
        # ListDaemons could answer that nothing can serve the need at present.
        return Slot.OK if self._choice(need) is not None else Slot.UNMAPPED

    def decide(self, need: Need, device_owner: str, offers: Sequence[Offer]) -> str | No:
        """The name of the service that the device is to use, or why it gets nothing."""
        consent = self._consent(need.owner, need.site_id)
        if consent is None:
            return No.NOT_CONSENTED
        if consent.get("paused"):
            return No.CONSENT_PAUSED
        own = need.owner == device_owner
        if not own and not self._is_member(need.owner, device_owner):
            return No.NOT_A_MEMBER
        choice = self._choice(need)
        if choice is None:
            return No.UNMAPPED
        service = str(choice["service"])
        offered = any(
            (offer.kind, offer.service) == (need.kind, service) and (own or offer.scope == TEAM)
            for offer in offers
        )
        # Somebody else's device is chosen by name; without one it is the person's own.
        if choice.get("deviceOwner", need.owner) != device_owner or not offered:
            return No.RESOLVED_ELSEWHERE
        return service

    def _choice(self, need: Need) -> dict[str, Any] | None:
        wanted = (need.owner, need.site_id, need.purpose, need.kind)
        for choice in self._policy["choices"]:
            if (choice["owner"], choice["siteId"], choice["purpose"], choice["kind"]) == wanted:
                return dict(choice)
        return None

    def _consent(self, owner: str, site_id: str) -> dict[str, Any] | None:
        pair = {"owner": owner, "siteId": site_id}
        if pair in self._projection.get("revoked", []):
            return None
        consents = self._projection.get("consents", [])
        return next((consent for consent in consents if pair.items() <= consent.items()), None)

    def _is_member(self, person: str, device_owner: str) -> bool:
        rosters = self._projection.get("rosters", [])
        return any(roster["owner"] == device_owner and person in roster["members"] for roster in rosters)
