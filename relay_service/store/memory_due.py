"""When time next changes a job."""

import heapq

from relay_service.core.lapses import due_at_ms
from relay_service.store.memory_row import Row

_SPARE_ENTRIES = 64


class DueTimes:
    """A heap of instants with at most one valid entry a job.

    A clock that moves later (a renewal) leaves its entry where it is: when that comes up, the
    job is put back at its true instant. Only a clock that moves earlier costs a new entry.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Row]] = []
        self._live = 0

    def schedule(self, row: Row) -> None:
        """Notes the row's next instant; a forgotten job has none."""
        job = row.job
        if job is None:
            self._live -= row.scheduled_at_ms is not None
            row.scheduled_at_ms = None
            self._compact()
            return
        due = due_at_ms(job)
        if row.scheduled_at_ms is None or due < row.scheduled_at_ms:
            self._live += row.scheduled_at_ms is None
            row.scheduled_at_ms = due
            heapq.heappush(self._entries, (due, job.sequence, row))
            self._compact()

    def may_be_due(self, now_ms: int) -> bool:
        """A cheap look: whether an entry, true or stale, is over."""
        return bool(self._entries) and self._entries[0][0] <= now_ms

    def pop(self, now_ms: int) -> Row | None:
        """The next job that is due, in order of its instant and then of its place."""
        due = self.next_due_ms()
        if due is None or due > now_ms:
            return None
        row = heapq.heappop(self._entries)[2]
        row.scheduled_at_ms = None
        self._live -= 1
        return row

    def next_due_ms(self) -> int | None:
        """The earliest instant that is true of a job."""
        while self._entries:
            at, sequence, row = self._entries[0]
            if row.job is None or row.scheduled_at_ms != at:
                heapq.heappop(self._entries)
                continue
            due = due_at_ms(row.job)
            if due <= at:
                return at
            row.scheduled_at_ms = due
            heapq.heapreplace(self._entries, (due, sequence, row))
        return None

    def _compact(self) -> None:
        if len(self._entries) > 3 * self._live + _SPARE_ENTRIES:
            self._entries = [entry for entry in self._entries if entry[2].scheduled_at_ms == entry[0]]
            heapq.heapify(self._entries)
