"""The clock of a store on one machine."""

import time
from collections.abc import Callable
from typing import Final

_STEADY: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall_ms() -> int:
    """Epoch milliseconds by the machine; it may step in both directions."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Milliseconds since an arbitrary start, the time that the machine sleeps included."""
    return time.clock_gettime_ns(_STEADY) // 1_000_000


class StoreClock:
    """Epoch milliseconds that never go back and never stand still.

    When the wall clock is stepped back, time goes on from where it was by the steady clock, and a lease lasts
    as long as it was granted for. When it is stepped forward, it is followed.
    """

    __slots__ = ("_ahead_ms", "_steady", "_wall")

    def __init__(
        self,
        wall: Callable[[], int] = wall_ms,
        steady: Callable[[], int] = steady_ms,
        floor_ms: int = 0,
    ) -> None:
        """Start at the wall clock, or at `floor_ms` when that is later: the last instant ever answered."""
        self._wall = wall
        self._steady = steady
        self._ahead_ms = floor_ms - steady()

    def now_ms(self) -> int:
        steady = self._steady()
        self._ahead_ms = max(self._ahead_ms, self._wall() - steady)
        return steady + self._ahead_ms
