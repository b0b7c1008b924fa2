"""Pairings in the memory of the process, for one relay."""

from collections.abc import Callable, Sequence

from relay_service.core import pairing as pairings
from relay_service.core.model import PairingDecided
from relay_service.core.pairing import Decision, Pairing, PairingIntroduction, PairingRefusal
from relay_service.store.pairings import FoundPairing


class MemoryPairings:
    """`PairingStore` without a server or a file."""

    def __init__(self, clock: Callable[[], int], say: Callable[[PairingDecided], None]) -> None:
        """Makes an empty store.

        Args:
            clock: epoch ms.
            say: tells listeners of a change.
        """
        self._clock = clock
        self._say = say
        self._pairings: dict[str, Pairing] = {}
        # All live equally long, so the order in which they began is that in which they expire.
        self._pending: dict[str, None] = {}
        self._by_user_code: dict[str, str] = {}
        self._by_identity: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._pairings)

    async def begin(
        self, pairing_id: str, user_code: str, introduction: PairingIntroduction
    ) -> Pairing | PairingRefusal:
        now_ms = self._clock()
        self._purge(now_ms)
        earlier = self._by_identity.get(introduction.identity.identity)
        if pairing_id in self._pairings or self._by_user_code.get(user_code, earlier) != earlier:
            return PairingRefusal.CODE_TAKEN
        if len(self._pending) - (earlier in self._pending) >= pairings.OUTSTANDING_PAIRINGS:
            return PairingRefusal.AT_CAPACITY
        if earlier is not None:
            self._forget(earlier)
        pairing = Pairing(pairing_id, user_code, introduction, now_ms + pairings.PAIRING_LIFE_MS)
        self._pairings[pairing_id] = pairing
        self._pending[pairing_id] = None
        self._by_user_code[user_code] = pairing_id
        self._by_identity[introduction.identity.identity] = pairing_id
        return pairing

    async def find(self, pairing_id: str) -> FoundPairing | None:
        now_ms = self._clock()
        pairing = self._pairings.get(pairing_id)
        if pairing is None or pairing.expires_at_ms <= now_ms:
            return None
        return FoundPairing(pairing, pairing.expires_at_ms - now_ms)

    async def find_by_user_code(self, user_code: str) -> FoundPairing | None:
        return await self.find(self._by_user_code.get(user_code, ""))

    async def decide(self, pairing_id: str, decision: Decision) -> Pairing | PairingRefusal:
        found = await self.find(pairing_id)
        if found is None:
            return PairingRefusal.NOT_FOUND
        decided = pairings.decide(found.pairing, decision)
        if decided is not found.pairing:
            self._pairings[pairing_id] = decided
            del self._pending[pairing_id]
            self._say(PairingDecided(pairing_id))
        return decided

    async def pending(self) -> Sequence[Pairing]:
        self._purge(self._clock())
        return [self._pairings[pairing_id] for pairing_id in self._pending]

    def _purge(self, now_ms: int) -> None:
        # All of them, and not until the first that lives: a clock that was set back would hide the rest.
        for gone in [known for known, pairing in self._pairings.items() if pairing.expires_at_ms <= now_ms]:
            self._forget(gone)

    def _forget(self, pairing_id: str) -> None:
        pairing = self._pairings.pop(pairing_id)
        self._pending.pop(pairing_id, None)
        del self._by_user_code[pairing.user_code]
        del self._by_identity[pairing.introduction.identity.identity]
