"""How many tasks of each tenant have not ended, those that are being created included.

On a database that several processes share the number may be seconds old, and so may a limit that goes by it.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from durable_service.core.errors import DomainError
from durable_service.core.states import TERMINAL
from durable_service.store.base import TaskChange, TaskStore
from service_common.clocks import Clock

_RECOUNT_SECONDS: Final = 5.0


class OpenTasks:
    """Counts by what the store tells of its changes, so that a creation costs no look at all tasks."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._counts: Counter[str] = Counter()
        self._begun = False
        self._stale = False
        self._counting = False
        self._entering: Counter[str] = Counter()

    def note(self, change: TaskChange) -> None:
        """A task has changed."""
        if not self._begun:
            return
        if change.remote:
            # What the task was before is not always known.
            self._stale = True
            return
        record = change.after or change.before
        # A count that is being taken may have it or not.
        self._stale = self._stale or self._counting
        if record is not None:
            opened = change.after is not None and not change.after.terminal
            was_open = change.before is not None and not change.before.terminal
            self._counts[record.key.tenant_id] += opened - was_open

    async def begin(self) -> None:
        """Counts what is there; called before anything is served."""
        await self._count()
        self._begun = True

    async def keep(self, clock: Clock) -> None:
        """Counts again, now and then, while other processes change tasks as well; until cancelled."""
        while True:
            await clock.sleep(_RECOUNT_SECONDS)
            if self._stale:
                self._stale = False
                try:
                    await self._count()
                except DomainError:
                    # The store is away; the old counts hold until it is back.
                    self._stale = True

    async def _count(self) -> None:
        counts = Counter[str]()
        self._counting = True
        try:
            for count in await self._store.counts():
                if count.state not in TERMINAL:
                    counts[count.tenant_id] += count.tasks
        finally:
            self._counting = False
        self._counts = counts

    @contextmanager
    def entering(self, tenant_id: str) -> Iterator[int]:
        """Yields how many others are open, and counts one that is being created as open meanwhile."""
        others = self._counts[tenant_id] + self._entering[tenant_id]
        self._entering[tenant_id] += 1
        try:
            yield others
        finally:
            # By now the store has told of it, if it was created.
            self._entering[tenant_id] -= 1
