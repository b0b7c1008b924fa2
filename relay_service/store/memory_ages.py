"""Which queued job was enqueued first, whatever lane it waits in."""

import heapq

from relay_service.core.model import JobState, RoutedJob
from relay_service.store.memory_row import Row

_SPARE_ENTRIES = 64


class QueuedAges:
    """A heap of jobs by the instant of their enqueue.

    A job that leaves the queue stays in the heap as a stale entry until it comes to the head or the
    heap is rebuilt, and is counted again when it comes back.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, Row]] = []
        self._live = 0

    def replace(self, row: Row, old: RoutedJob | None, new: RoutedJob | None) -> None:
        """Takes note of a job that comes to the queue or leaves it."""
        was_queued, is_queued = _is_queued(old), _is_queued(new)
        if is_queued == was_queued:
            return
        self._live += 1 if is_queued else -1
        if new is not None and is_queued and not row.is_aged:
            row.is_aged = True
            heapq.heappush(self._entries, (row.enqueued_at_ms, new.sequence, row))
        if len(self._entries) > 3 * self._live + _SPARE_ENTRIES:
            self._rebuild()

    def oldest_ms(self) -> int | None:
        """The earliest instant, dropping stale entries before it."""
        while self._entries:
            at_ms, _, row = self._entries[0]
            if _is_queued(row.job):
                return at_ms
            heapq.heappop(self._entries)
            row.is_aged = False
        return None

    def _rebuild(self) -> None:
        kept = [entry for entry in self._entries if _is_queued(entry[2].job)]
        for _, _, row in self._entries:
            row.is_aged = _is_queued(row.job)
        self._entries = kept
        heapq.heapify(self._entries)


def _is_queued(job: RoutedJob | None) -> bool:
    return job is not None and job.state is JobState.QUEUED
