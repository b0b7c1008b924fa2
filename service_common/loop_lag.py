"""Noticing that the event loop is late."""

from collections.abc import Callable
from typing import Final

from service_common.clocks import Clock, TimerHandle
from service_common.health import ServingState

_INTERVAL_SECONDS: Final = 0.5
# A lag is reported for this long after it ended, so that health checks between two lags see it.
_QUIET_SECONDS: Final = 5.0


class LoopLagMonitor:
    """Takes the process out of service while its event loop runs late.

    Keepalive cannot show it: gRPC answers pings from threads of its own while every handler stands still.
    """

    def __init__(
        self,
        clock: Clock,
        state: ServingState,
        *,
        limit_ms: int = 2_000,
        report: Callable[[float], object] | None = None,
    ) -> None:
        """Watch with these settings.

        Args:
            clock: Whose timers are watched.
            state: Where a lag is told.
            limit_ms: A timer later than this many milliseconds is a lag.
            report: Is called with each measured lag in seconds, for a gauge.
        """
        self._clock = clock
        self._state = state
        self._limit_seconds = limit_ms / 1000
        self._report = report
        self._timer: TimerHandle | None = None
        self._due = 0.0
        self._late_at = float("-inf")

    def start(self) -> None:
        """Begin to measure."""
        self._due = self._clock.monotonic() + _INTERVAL_SECONDS
        self._timer = self._clock.call_later(_INTERVAL_SECONDS, self._measure)

    def stop(self) -> None:
        """End measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _measure(self) -> None:
        now = self._clock.monotonic()
        lag = max(0.0, now - self._due)
        if lag > self._limit_seconds:
            self._late_at = now
        self._state.set_lagging(lagging=now - self._late_at < _QUIET_SECONDS)
        if self._report is not None:
            self._report(lag)
        self.start()
