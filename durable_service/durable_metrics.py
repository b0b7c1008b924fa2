"""What the service counts, beside the calls themselves."""

from typing import Final

from durable_service.store.base import TaskChange
from service_common.metrics import Metrics
from service_common.sessions.endings import EndReason

# The service's own entries that operators watch the rate of; what workers append has types of their choice.
_COUNTED: Final = frozenset(
    {
        "task.created",
        "lease.granted",
        "lease.expired",
        "action.executing",
        "action.unknown",
        "action.confirmed",
        "action.rejected",
        "approval.requested",
        "approval.decided",
        "approval.expired",
    }
)


class DurableMetrics:
    """Counters of the service; labels are few and never hold an id that a caller chose."""

    def __init__(self, metrics: Metrics) -> None:
        self._entries = metrics.counter("durable_journal_entries_total", "Journal entries by type", ["type"])
        self._ended_tasks = metrics.counter("durable_tasks_ended_total", "Tasks by how they ended", ["state"])
        self._purged = metrics.counter(
            "durable_tasks_purged_total", "Tasks purged by how they had ended", ["state"]
        )
        self._ended = metrics.counter("durable_streams_ended_total", "Streams by how they ended", ["end"])
        self._open = metrics.gauge("durable_streams_open", "Streams of workers open now")

    def note(self, change: TaskChange) -> None:
        """A task has changed; each process counts what it changed itself."""
        if change.remote:
            return
        for event in change.events:
            if event.event_id is None and event.type in _COUNTED:
                self._entries.labels(event.type).inc()
        before, after = change.before, change.after
        if after is None and before is not None:
            self._purged.labels(before.state.value).inc()
        if after is not None and after.terminal and before is not None and not before.terminal:
            self._ended_tasks.labels(after.state.value).inc()

    def stream_opened(self) -> None:
        """A hello was accepted."""
        self._open.inc()

    def stream_ended(self, reason: EndReason) -> None:
        """A stream that was accepted has ended."""
        self._open.dec()
        self._ended.labels(reason.value).inc()
