"""Journals in memory, each within the bounds of the store."""

from collections import deque
from collections.abc import Iterable, Iterator

from durable_service.core.canonical_json import canonical_bytes
from durable_service.core.definition import TaskKey
from durable_service.core.model import TaskEvent
from durable_service.store.base import StoreLimits
from durable_service.store.timetable import Timetable


class Journal:
    """The entries kept of one task, oldest first."""

    __slots__ = ("_bytes", "_entries")

    def __init__(self) -> None:
        self._entries: deque[TaskEvent] = deque()
        self._bytes = 0

    def __iter__(self) -> Iterator[TaskEvent]:
        return iter(self._entries)

    @property
    def oldest(self) -> TaskEvent | None:
        return self._entries[0] if self._entries else None

    def add(self, events: Iterable[TaskEvent]) -> None:
        for event in events:
            self._entries.append(event)
            self._bytes += canonical_bytes(event.data)

    def bound(self, limits: StoreLimits) -> None:
        """Drops what is too much; the newest entry stays."""
        most = limits.event_bytes_per_task
        while len(self._entries) > limits.events_per_task:
            self.drop_oldest()
        while most is not None and self._bytes > most and len(self._entries) > 1:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        self._bytes -= canonical_bytes(self._entries.popleft().data)


class Journals:
    """The journals of all tasks, and when the next entry of any of them is too old."""

    def __init__(self, limits: StoreLimits) -> None:
        self._limits = limits
        self._journals: dict[TaskKey, Journal] = {}
        self._ends = Timetable()

    def of(self, key: TaskKey) -> Iterable[TaskEvent]:
        return self._journals.get(key, ())

    def earliest(self, key: TaskKey, latest: int) -> int:
        """Of the entries kept; one above the latest when none is."""
        journal = self._journals.get(key)
        oldest = None if journal is None else journal.oldest
        return latest + 1 if oldest is None else oldest.sequence

    def add(self, key: TaskKey, events: Iterable[TaskEvent], now_ms: int) -> None:
        """Adds entries, and drops those of this task that are too many, too large or too old."""
        journal = self._journals.setdefault(key, Journal())
        journal.add(events)
        journal.bound(self._limits)
        while (end_ms := self._end_ms(journal)) is not None and end_ms <= now_ms:
            journal.drop_oldest()
        self._ends.put(key, end_ms)

    def trim(self, now_ms: int, limit: int) -> int:
        """Drops up to `limit` entries that are too old, the oldest first; how many there were."""
        for dropped in range(limit):
            end_ms, key = next(iter(self._ends), (now_ms + 1, None))
            if key is None or end_ms > now_ms:
                return dropped
            self._journals[key].drop_oldest()
            self._ends.put(key, self._end_ms(self._journals[key]))
        return limit

    def forget(self, key: TaskKey) -> None:
        del self._journals[key]
        self._ends.put(key, None)

    def _end_ms(self, journal: Journal) -> int | None:
        """When the oldest entry is too old."""
        age_ms, oldest = self._limits.event_age_ms, journal.oldest
        return None if age_ms is None or oldest is None else oldest.at_ms + age_ms
