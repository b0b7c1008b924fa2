"""How many tasks of each tenant have not ended, those that are being created included."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from durable_service.core.states import TERMINAL
from durable_service.store.base import TaskChange, TaskStore


class OpenTasks:
    """Counts by what the store tells of its changes, so that a creation costs no look at all tasks."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._counts: Counter[str] = Counter()
        self._begun = False

    def note(self, change: TaskChange) -> None:
        """A task has changed."""
        if not self._begun:
            return
        record = change.after or change.before
        if record is not None:
            opened = change.after is not None and not change.after.terminal
            was_open = change.before is not None and not change.before.terminal
            self._counts[record.key.tenant_id] += opened - was_open

    async def begin(self) -> None:
        """Counts what is there; called once, before anything is served."""
        for count in await self._store.counts():
            if count.state not in TERMINAL:
                self._counts[count.tenant_id] += count.tasks
        self._begun = True

    @contextmanager
    def entering(self, tenant_id: str) -> Iterator[int]:
        """Yields how many others are open, and counts one that is being created as open meanwhile."""
        others = self._counts[tenant_id]
        self._counts[tenant_id] += 1
        try:
            yield others
        finally:
            # By now the store has told of it, if it was created.
            self._counts[tenant_id] -= 1
