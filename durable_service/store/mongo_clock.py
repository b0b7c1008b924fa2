"""The clock of a store on MongoDB: the server's, and never behind what it has shown before."""

from collections.abc import Callable
from typing import NamedTuple

from durable_service.store.clock import steady_ms


class Instant(NamedTuple):
    """A moment by the server.

    Attributes:
        behind: the server's clock was set back, and the moment was reckoned from an earlier reading.
    """

    ms: int
    behind: bool


class ServerClock:
    """Readings of the server's clock, each at or after the one before.

    When the server's clock goes back, by a step or because another member became the primary, time goes on
    from the last reading by the steady clock of this process. A later reading can come before an earlier one
    over another connection; it is treated so as well, and never gets ahead of the server: each reading was
    true before it came here, so a reading and the time since then are no more than what the server's clock
    shows.
    """

    __slots__ = ("_last_ms", "_read_at", "_steady")

    def __init__(self, floor_ms: int = 0, steady: Callable[[], int] = steady_ms) -> None:
        """Start at or after `floor_ms`: the latest moment that is written down."""
        self._steady = steady
        self._last_ms = floor_ms
        self._read_at = steady()

    @property
    def latest_ms(self) -> int:
        """The latest moment that was answered."""
        return self._last_ms

    def read(self, server_ms: int) -> Instant:
        """The moment, after the server said that it is `server_ms`."""
        steady = self._steady()
        reckoned_ms = self._last_ms + steady - self._read_at
        behind = server_ms < self._last_ms
        self._last_ms = reckoned_ms if behind else server_ms
        self._read_at = steady
        return Instant(self._last_ms, behind)
