"""The SQLite store of a server that is to be killed, or whose disk or clock is to fail it."""

import signal
from pathlib import Path
from typing import Any, Final

from durable_service.store.base import StoreLimits
from durable_service.store.clock import steady_ms, wall_ms
from durable_service.store.sqlite import SqliteTaskStore

from .fuse import Fuse, say

HOUR_MS: Final = 3_600_000
TIME_PASSES: Final = signal.SIGRTMIN
_TROUBLES: Final = {
    "disk-full": "PRAGMA max_page_count = 1",
    "read-only": "PRAGMA query_only = ON",
}


class FailingStore(SqliteTaskStore):
    """Its fuse is burnt by commits; SIGUSR1 brings it into trouble, and SIGUSR2 out of it.

    With each `TIME_PASSES` the length of a lease has gone by at once.
    """

    fuse = Fuse()
    trouble = ""
    lease_ms = 0

    @classmethod
    def prepare(cls, fuse: Fuse, trouble: str, lease_ms: int) -> None:
        """What is to befall the store that this process will open."""
        cls.fuse, cls.trouble, cls.lease_ms = fuse, trouble, lease_ms

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

    async def create(self, *arguments: Any) -> Any:
        return await self._written(super().create(*arguments))

    async def update(self, *arguments: Any) -> Any:
        return await self._written(super().update(*arguments))

    async def append(self, *arguments: Any) -> Any:
        return await self._written(super().append(*arguments))

    async def _written(self, call: Any) -> Any:
        self.fuse.reach("commit:before")
        decision = await call
        if decision.written:
            # On the disk, and not yet answered.
            for event in decision.events:
                self.fuse.reach(f"commit:{event.type}")
            self.fuse.reach("commit:after")
        return decision

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
