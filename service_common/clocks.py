"""Time as an argument: the system's clock in production, a hand-driven one in tests."""

import asyncio
import heapq
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

_MICROSECONDS: Final = 1_000_000
_STEADY: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# Passes of the event loop that woken tasks get to reach their next wait.
_SETTLING_PASSES: Final = 20


class TimerHandle(Protocol):
    """A callback that is due later."""

    def cancel(self) -> None:
        """Drop the callback; harmless when it ran already."""


class Clock(Protocol):
    """Where code that waits or stamps gets its time from."""

    def now_ms(self) -> int:
        """Return the wall clock, epoch milliseconds. It may step in both directions."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start. It never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> TimerHandle:
        """Call back on the running event loop after that many seconds."""


class SystemClock:
    """The machine's clocks and the running event loop's timers."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        # Counts the time that a laptop sleeps, where the system can: a lease does not sleep with its holder.
        return time.clock_gettime(_STEADY)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)


class _ManualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A clock that moves only when told to.

    Timers run inside `advance`, in the order they are due, each with the clock at its own due time; timers
    that they set run in the same advance when they are due within it.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        """Start the wall clock at `start_ms` (epoch milliseconds) and the monotonic one at zero."""
        self._start_us = start_ms * 1000
        self._now_us = self._start_us
        self._timers: list[tuple[int, int, _ManualTimer]] = []
        self._timers_set = 0

    def now_ms(self) -> int:
        return self._now_us // 1000

    def monotonic(self) -> float:
        return (self._now_us - self._start_us) / _MICROSECONDS

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = self.call_later(seconds, wake)
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> TimerHandle:
        timer = _ManualTimer(callback)
        # Whole microseconds: sums of float seconds would put equal instants in an arbitrary order.
        due_us = self._now_us + max(0, round(seconds * _MICROSECONDS))
        self._timers_set += 1
        heapq.heappush(self._timers, (due_us, self._timers_set, timer))
        return timer

    @property
    def pending(self) -> int:
        """How many timers and sleepers wait."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass.

        Sleepers are woken, but they run when the event loop next gets control; code that sleeps repeatedly
        within the interval needs `advance_async`.
        """
        for _ in self._pass(ms):
            pass

    async def advance_async(self, ms: int) -> None:
        """Let `ms` milliseconds pass and let woken tasks run at each instant.

        Tasks that wait for anything but this clock or each other, a socket for one, are not waited for.
        """
        await _settle()
        for _ in self._pass(ms):
            await _settle()
        await _settle()

    def stall(self, ms: int) -> None:
        """Let `ms` milliseconds pass as on a blocked event loop: what falls due runs at the next advance."""
        self._now_us += ms * 1000

    def _pass(self, ms: int) -> Iterator[None]:
        if ms < 0:
            raise ValueError("time does not go back")
        end_us = self._now_us + ms * 1000
        while self._timers and self._timers[0][0] <= end_us:
            due_us, _, timer = heapq.heappop(self._timers)
            if timer.callback is None:
                continue
            self._now_us = max(self._now_us, due_us)
            callback, timer.callback = timer.callback, None
            callback()
            yield
        # Never back: a callback may have stalled the clock beyond the end.
        self._now_us = max(self._now_us, end_us)


async def _settle() -> None:
    for _ in range(_SETTLING_PASSES):
        await asyncio.sleep(0)
