"""Tasks in the order of an instant, for the store in memory: looking at the first few costs little."""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import takewhile

from durable_service.core.availability import Availability, Queue
from durable_service.core.definition import Driver, TaskKey
from durable_service.store.base import ClaimableQuery


class Timetable:
    """Tasks that have an instant, in its order and then by their ids."""

    __slots__ = ("_instants", "_order")

    def __init__(self) -> None:
        self._order: list[tuple[int, str, str]] = []
        self._instants: dict[TaskKey, int] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[tuple[int, TaskKey]]:
        return ((at_ms, TaskKey(tenant_id, task_id)) for at_ms, task_id, tenant_id in self._order)

    def put(self, key: TaskKey, at_ms: int | None) -> None:
        """Moves a task to another instant; None takes it out."""
        known_ms = self._instants.get(key)
        if known_ms == at_ms:
            return
        if known_ms is not None:
            del self._order[bisect_left(self._order, (known_ms, key.task_id, key.tenant_id))]
            del self._instants[key]
        if at_ms is not None:
            insort(self._order, (at_ms, key.task_id, key.tenant_id))
            self._instants[key] = at_ms

    def until(self, now_ms: int) -> Iterator[tuple[int, TaskKey]]:
        """Those whose instant has come."""
        return takewhile(lambda item: item[0] <= now_ms, self)


class WaitingTasks:
    """Tasks that wait for somebody, in one line for each tenant, queue and driver."""

    __slots__ = ("_lines", "_places")

    def __init__(self) -> None:
        self._lines: dict[tuple[str, Queue], dict[Driver | None, Timetable]] = {}
        self._places: dict[TaskKey, Queue] = {}

    def put(self, key: TaskKey, driver: Driver | None, place: Availability | None) -> None:
        """Lets a task wait at another place; None takes it out."""
        queue = self._places.get(key)
        if queue is not None and (place is None or place.queue is not queue):
            self._leave(key, driver, queue)
        if place is not None:
            lines = self._lines.setdefault((key.tenant_id, place.queue), {})
            lines.setdefault(driver, Timetable()).put(key, place.at_ms)
            self._places[key] = place.queue

    def all(self, query: ClaimableQuery) -> Iterator[tuple[int, TaskKey]]:
        """Those that a query is for, now or by the passing of time alone, in the order of their instants."""
        lines = self._lines.get((query.tenant_id, query.queue), {})
        wanted = lines.keys() if query.drivers is None else query.drivers & lines.keys()
        return heapq.merge(*(lines[driver] for driver in wanted), key=lambda item: (item[0], item[1].task_id))

    def until(self, query: ClaimableQuery, now_ms: int) -> Iterator[tuple[int, TaskKey]]:
        """Those of them whose instant has come."""
        return takewhile(lambda item: item[0] <= now_ms, self.all(query))

    def _leave(self, key: TaskKey, driver: Driver | None, queue: Queue) -> None:
        lines = self._lines[key.tenant_id, queue]
        lines[driver].put(key, None)
        if not len(lines[driver]):
            del lines[driver]
        del self._places[key]
