"""In which order the tasks that wait are tried, where several services share a store."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from durable_service.core.definition import TaskKey

# Claims that keep out of the way after another service was faster, and among how many times as many tasks.
_SPREAD_CLAIMS: Final = 20
_SPREAD_WIDTH: Final = 4


class ClaimOrder:
    """The oldest task first, as long as no other service is after the same ones.

    Each service finds the same tasks at the front of the queue. If all of them tried the oldest one first,
    they would take turns at it, and each task would cost as many writes as there are services. So whoever
    comes second somewhere takes any of those found for a while, which are the oldest few still.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._spread = 0

    def widened(self, limit: int) -> int:
        """How many to look at, of whom `limit` would do for somebody alone."""
        return _SPREAD_WIDTH * limit if self._spread else limit

    def of(self, found: Sequence[TaskKey]) -> Iterator[TaskKey]:
        """Those found, oldest first, in the order in which one claim tries them."""
        self._spread = max(0, self._spread - 1)
        rest = list(found)
        while rest:
            # Looked at each time: what came of the one before has its part in it.
            yield rest.pop(self._random.randrange(len(rest)) if self._spread else 0)

    def lost(self) -> None:
        """Another service was faster."""
        self._spread = _SPREAD_CLAIMS
