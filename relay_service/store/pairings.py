"""The port for pairings: shared by the relays on one store, so that any of them can approve.

As with jobs, the store owns the clock, and every method is one decision together with its write. A pairing
that has expired is none: no method finds it, and it counts for nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from relay_service.core.pairing import Decision, Pairing, PairingIntroduction, PairingRefusal


@dataclass(frozen=True, slots=True)
class FoundPairing:
    """A pairing, and how long it has left at the moment of the answer."""

    pairing: Pairing
    remaining_ms: int


class PairingStore(Protocol):
    """Pairings that have begun and have not expired."""

    async def begin(
        self, pairing_id: str, user_code: str, introduction: PairingIntroduction
    ) -> Pairing | PairingRefusal:
        """Adds a pairing for 600,000 ms, in the place of an earlier one of the same identity key.

        Returns:
            `AT_CAPACITY` when 500 wait for a decision, the replaced one not counted; `CODE_TAKEN` when one of
            the codes belongs to another pairing. Nothing is changed then.
        """

    async def find(self, pairing_id: str) -> FoundPairing | None:
        """The pairing of a device code."""

    async def find_by_user_code(self, user_code: str) -> FoundPairing | None:
        """The pairing of a user code in the form of `read_user_code`."""

    async def decide(self, pairing_id: str, decision: Decision) -> Pairing | PairingRefusal:
        """Notes a decision and tells every relay (`PairingDecided`); a decided pairing stays as it is.

        Returns:
            The pairing as it stands then, or `NOT_FOUND`.
        """

    async def pending(self) -> Sequence[Pairing]:
        """Pairings that wait for a decision, the one that expires first first; at most 500."""
