"""What a change of a task means for the workers that hold or held it."""

from dataclasses import dataclass
from enum import StrEnum

from durable_service.core.leases import settled_by
from durable_service.core.model import Holder, TaskRecord
from durable_service.core.states import TaskState
from durable_service.core.verdicts import LeaseVerdict, verdict
from durable_service.store.base import TaskChange


class Wake(StrEnum):
    """What has happened to a task that waited."""

    APPROVAL_DECIDED = "approval.decided"
    APPROVAL_EXPIRED = "approval.expired"
    TIMER = "timer"
    RECONCILED = "reconciled"


@dataclass(frozen=True, slots=True)
class LeasePush:
    """A word on a lease that its holder did not ask for."""

    holder: Holder
    verdict: LeaseVerdict


@dataclass(frozen=True, slots=True)
class WakePush:
    """News for the worker that ran the task last."""

    worker: str
    wake: Wake
    sequence: int


def is_record_keeping(change: TaskChange) -> bool:
    """Whether a holder has written something down, and the task stands where it stood.

    Most changes are like this. They concern those who read the task, and nobody who waits for work, for a
    lease or for an instant.
    """
    before, after = change.before, change.after
    return (
        before is not None
        and after is not None
        and not change.remote
        and after.lease is not None
        and after.lease is before.lease
        and after.state is before.state
        and after.actions is before.actions
        and after.approvals is before.approvals
        and after.not_before_ms == before.not_before_ms
    )


def lease_push(change: TaskChange) -> LeasePush | None:
    """A cancel for the holder, or the loss of the lease by another's act; None when there is neither."""
    before, after = change.before, change.after
    if before is None or after is None or before.lease is None:
        return None
    holder = Holder(before.lease.worker_id, before.lease.fence)
    lost = after.lease is None or after.lease.fence != holder.fence
    if lost and settled_by(after, holder):
        # By its own act, which was answered.
        return None
    canceling = after.state is TaskState.CANCEL_REQUESTED and before.state is not after.state
    if not lost and not canceling:
        return None
    return LeasePush(holder, verdict(after, holder, after.updated_at_ms))


def wake_push(change: TaskChange) -> WakePush | None:
    """What the worker that ran the task last has to hear; None when nothing has happened to wait for."""
    after = change.after
    if after is None or after.terminal or not after.attempts:
        return None
    worker = after.attempts[-1].worker_id
    for event in change.events:
        if event.type in {Wake.APPROVAL_DECIDED, Wake.APPROVAL_EXPIRED}:
            return WakePush(worker, Wake(event.type), event.sequence)
    if _reconciled(change.before, after) and (after.lease is None or after.lease.worker_id != worker):
        return WakePush(worker, Wake.RECONCILED, after.last_sequence)
    return None


def timer_push(record: TaskRecord) -> WakePush | None:
    """The pause of a task is over."""
    if not record.attempts:
        return None
    return WakePush(record.attempts[-1].worker_id, Wake.TIMER, record.last_sequence)


def _reconciled(before: TaskRecord | None, after: TaskRecord) -> bool:
    return before is not None and any(before.open_actions()) and not any(after.open_actions())
