"""How many pairings one peer may start, so that a flood from one address shuts out nobody else."""

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice

_MINUTE_SECONDS = 60.0
# Peers remembered at most. Whoever has more addresses than these is held by no limit of this kind.
_PEERS = 10_000


class PairingRates:
    """A token bucket for each peer; a peer that was quiet for a minute is like one never seen."""

    def __init__(self, monotonic: Callable[[], float], per_minute: int, peers: int = _PEERS) -> None:
        """Starts with full buckets.

        Args:
            monotonic: seconds since an arbitrary start.
            per_minute: starts of one peer in a minute, and at once.
            peers: how many to remember, the ones seen last.
        """
        self._monotonic = monotonic
        self._most = float(per_minute)
        self._per_second = per_minute / _MINUTE_SECONDS
        self._peers = peers
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, peer: str) -> int:
        """Takes a start of this peer; 0, or in how many milliseconds there will be one."""
        now = self._monotonic()
        tokens, at = self._buckets.pop(peer, (self._most, now))
        tokens = min(self._most, tokens + (now - at) * self._per_second)
        allowed = tokens >= 1.0
        self._buckets[peer] = (tokens - 1.0 if allowed else tokens, now)
        self._forget(now)
        return 0 if allowed else max(1, round((1.0 - tokens) / self._per_second * 1_000))

    def _forget(self, now: float) -> None:
        # In order of the last start, so that full buckets come first. Two for each that may be added.
        for peer in tuple(islice(self._buckets, 2)):
            if len(self._buckets) > self._peers or now - self._buckets[peer][1] >= _MINUTE_SECONDS:
                del self._buckets[peer]
