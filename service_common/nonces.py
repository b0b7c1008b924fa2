"""Nonces that one process remembers by itself."""

import heapq
from typing import Final

from service_common.clocks import Clock

# More than one for each that is added, so that the ledger shrinks, and few, so that no call pays for many.
_FORGOTTEN_PER_USE: Final = 4


class MemoryNonceLedger:
    """The used nonces of one process. Replicas need a ledger that they share.

    A use costs O(log n) and no use ever clears up more than a handful of old entries. Only requests whose
    signature held get here, so the ledger holds at most what known callers send within the time to live.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._expiries: dict[tuple[str, str], float] = {}
        self._queue: list[tuple[float, str, str]] = []

    def __len__(self) -> int:
        return len(self._expiries)

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        """Record the nonce for `ttl_ms` milliseconds; False when the caller has used it already."""
        now = self._clock.monotonic()
        self._forget_expired(now)
        key = (caller, nonce)
        expiry = self._expiries.get(key)
        # An expired entry may still be here, because clearing up is rationed.
        if expiry is not None and expiry > now:
            return False
        expires_at = now + ttl_ms / 1000
        self._expiries[key] = expires_at
        heapq.heappush(self._queue, (expires_at, caller, nonce))
        return True

    def _forget_expired(self, now: float) -> None:
        for _ in range(_FORGOTTEN_PER_USE):
            if not self._queue or self._queue[0][0] > now:
                return
            expiry, caller, nonce = heapq.heappop(self._queue)
            # The same nonce may have been used again since and then lives longer than this entry tells.
            if self._expiries[caller, nonce] == expiry:
                del self._expiries[caller, nonce]
