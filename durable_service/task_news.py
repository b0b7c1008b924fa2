"""Who hears of which committed change."""

from collections.abc import Callable, Hashable

from durable_service.core.definition import TaskKey
from durable_service.store.base import Listener, TaskChange, TaskStore


class TaskNews:
    """One listener at the store, and many here: to one task, to one tenant, or to everything."""

    def __init__(self, store: TaskStore) -> None:
        self._listeners: dict[Hashable, dict[int, Listener]] = {}
        self._numbers = 0
        self._stop = store.listen(self._tell)

    def of_task(self, key: TaskKey, listener: Listener) -> Callable[[], None]:
        """Calls `listener` for every change of a task; the answer ends that."""
        return self._add(key, listener)

    def of_tenant(self, tenant_id: str, listener: Listener) -> Callable[[], None]:
        """Calls `listener` for every change in a tenant; the answer ends that."""
        return self._add(tenant_id, listener)

    def of_all(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` for every change; the answer ends that."""
        return self._add(None, listener)

    def close(self) -> None:
        """Hears nothing more."""
        self._stop()

    def _add(self, subject: Hashable, listener: Listener) -> Callable[[], None]:
        self._numbers += 1
        number = self._numbers
        self._listeners.setdefault(subject, {})[number] = listener

        def remove() -> None:
            present = self._listeners.get(subject)
            if present is not None and present.pop(number, None) is not None and not present:
                del self._listeners[subject]

        return remove

    def _tell(self, change: TaskChange) -> None:
        record = change.after or change.before
        if record is None:
            return
        self._tell_of(None, change)
        # Mostly there is nobody else, and the key need not be made.
        if len(self._listeners) > (None in self._listeners):
            key = record.key
            self._tell_of(key.tenant_id, change)
            self._tell_of(key, change)

    def _tell_of(self, subject: Hashable, change: TaskChange) -> None:
        for listener in tuple(self._listeners.get(subject, {}).values()):
            listener(change)
