"""Where a task waits: for a worker that runs it, or for somebody who brings evidence."""

from dataclasses import dataclass
from enum import StrEnum

from durable_service.core.model import TaskRecord
from durable_service.core.states import TaskState


class Queue(StrEnum):
    """Who is looked for."""

    WORK = "work"
    RECOVERY = "recovery"


@dataclass(frozen=True, slots=True)
class Availability:
    """From `at_ms` on the task is there to be claimed, unless it changes before."""

    queue: Queue
    at_ms: int


def availability(record: TaskRecord) -> Availability | None:
    """Where the task waits, or will by the passing of time alone; None when nobody is looked for.

    A task whose cancellation is requested needs nobody once its lease is over, unless an outcome is open.
    """
    if record.terminal:
        return None
    free_at_ms = record.created_at_ms if record.fence == 0 else record.updated_at_ms
    if record.lease is not None:
        free_at_ms = record.lease.expires_at_ms
    if any(record.open_actions()):
        return Availability(Queue.RECOVERY, free_at_ms)
    if record.state is TaskState.CANCEL_REQUESTED:
        return None
    return Availability(Queue.WORK, max(free_at_ms, _suspended_until_ms(record), record.not_before_ms or 0))


def _suspended_until_ms(record: TaskRecord) -> int:
    """When the last pending approval of a suspended task expires."""
    if record.state is not TaskState.AWAITING_APPROVAL:
        return 0
    undecided = [item.expires_at_ms for item in record.approvals.values() if item.decision == "pending"]
    return max(undecided, default=0)
