"""The SQLite store of a server whose disk or clock is to fail it."""

import signal
from pathlib import Path
from typing import Final

from durable_service.store.base import StoreLimits
from durable_service.store.clock import steady_ms, wall_ms
from durable_service.store.sqlite import SqliteTaskStore

from .fuse import say

HOUR_MS: Final = 3_600_000
TIME_PASSES: Final = signal.SIGRTMIN
_TROUBLES: Final = {
    "disk-full": "PRAGMA max_page_count = 1",
    "read-only": "PRAGMA query_only = ON",
}


class FailingStore(SqliteTaskStore):
    """SIGUSR1 brings it into trouble, and SIGUSR2 out of it.

    With each `TIME_PASSES` the length of a lease has gone by at once.
    """

    trouble = ""
    lease_ms = 0

    @classmethod
    def prepare(cls, trouble: str, lease_ms: int) -> None:
        """What is to befall the store that this process will open."""
        cls.trouble, cls.lease_ms = trouble, lease_ms

    def __init__(self, database: Path, *, limits: StoreLimits | None = None) -> None:
        self.clock_set_by_ms = 0
        self.passed_ms = 0
        super().__init__(
            database,
            limits=limits,
            wall=lambda: wall_ms() + self.passed_ms + self.clock_set_by_ms,
            steady=lambda: steady_ms() + self.passed_ms,
        )
        opened.append(self)

    def into_trouble(self) -> None:
        if self.trouble == "clock-back":
            self.clock_set_by_ms = -HOUR_MS
        else:
            # As many pages as there are, which the database rounds up to by itself.
            self._writing.execute(_TROUBLES[self.trouble])
        say("in trouble")

    def out_of_it(self) -> None:
        self._writing.execute("PRAGMA max_page_count = 1073741823")
        self._writing.execute("PRAGMA query_only = OFF")
        self.clock_set_by_ms = 0
        say("relieved")

    def pass_lease(self) -> None:
        self.passed_ms += self.lease_ms
        say("lets time pass")


opened: list[FailingStore] = []


def heed_signals() -> None:
    """Has to be called in the main thread; the store is opened in another one."""
    signal.signal(signal.SIGUSR1, lambda *_: opened[-1].into_trouble())
    signal.signal(signal.SIGUSR2, lambda *_: opened[-1].out_of_it())
    signal.signal(TIME_PASSES, lambda *_: opened[-1].pass_lease())
