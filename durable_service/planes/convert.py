"""Between the small values of the protocol and those of the core. No rules here, only shapes."""

from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from durable_service.caller import Caller, worker_of
from durable_service.core.definition import Driver
from durable_service.core.model import Holder, Lease, TaskRecord
from durable_service.core.states import ActionState, TaskState
from durable_service.core.verdicts import Condition, LeaseEnd, LeaseState, LeaseVerdict
from sealwork.durable.v1 import action_pb2, lease_pb2, task_pb2

TASK_STATES = {
    TaskState.QUEUED: task_pb2.TASK_STATE_QUEUED,
    TaskState.RUNNING: task_pb2.TASK_STATE_RUNNING,
    TaskState.AWAITING_APPROVAL: task_pb2.TASK_STATE_AWAITING_APPROVAL,
    TaskState.CANCEL_REQUESTED: task_pb2.TASK_STATE_CANCEL_REQUESTED,
    TaskState.COMPLETED: task_pb2.TASK_STATE_COMPLETED,
    TaskState.FAILED: task_pb2.TASK_STATE_FAILED,
    TaskState.CANCELED: task_pb2.TASK_STATE_CANCELED,
    TaskState.STOPPED: task_pb2.TASK_STATE_STOPPED,
}
TASK_STATE_OF = {value: state for state, value in TASK_STATES.items()}
ACTION_STATES = {
    ActionState.PREPARED: action_pb2.ACTION_STATE_PREPARED,
    ActionState.AWAITING_APPROVAL: action_pb2.ACTION_STATE_AWAITING_APPROVAL,
    ActionState.EXECUTING: action_pb2.ACTION_STATE_EXECUTING,
    ActionState.UNKNOWN: action_pb2.ACTION_STATE_UNKNOWN,
    ActionState.CONFIRMED: action_pb2.ACTION_STATE_CONFIRMED,
    ActionState.REJECTED: action_pb2.ACTION_STATE_REJECTED,
    ActionState.CANCELED: action_pb2.ACTION_STATE_CANCELED,
}
ACTION_STATE_OF = {value: state for state, value in ACTION_STATES.items()}
CONDITIONS = {
    Condition.LEASED: task_pb2.TASK_CONDITION_LEASED,
    Condition.LEASE_EXPIRED: task_pb2.TASK_CONDITION_LEASE_EXPIRED,
    Condition.RECOVERY_REQUIRED: task_pb2.TASK_CONDITION_RECOVERY_REQUIRED,
    Condition.APPROVAL_PENDING: task_pb2.TASK_CONDITION_APPROVAL_PENDING,
    Condition.APPROVAL_DECIDED: task_pb2.TASK_CONDITION_APPROVAL_DECIDED,
    Condition.BUDGET_EXHAUSTED: task_pb2.TASK_CONDITION_BUDGET_EXHAUSTED,
    Condition.NOT_BEFORE: task_pb2.TASK_CONDITION_NOT_BEFORE,
    Condition.CLAIMABLE: task_pb2.TASK_CONDITION_CLAIMABLE,
}
CONDITION_OF = {value: condition for condition, value in CONDITIONS.items()}
LEASE_STATES = {
    LeaseState.ACTIVE: lease_pb2.LEASE_STATE_ACTIVE,
    LeaseState.CANCEL_REQUESTED: lease_pb2.LEASE_STATE_CANCEL_REQUESTED,
    LeaseState.LOST: lease_pb2.LEASE_STATE_LOST,
    LeaseState.COMPLETED: lease_pb2.LEASE_STATE_COMPLETED,
}
LEASE_ENDS = {
    None: lease_pb2.LEASE_END_REASON_UNSPECIFIED,
    LeaseEnd.UNKNOWN: lease_pb2.LEASE_END_REASON_UNSPECIFIED,
    LeaseEnd.EXPIRED: lease_pb2.LEASE_END_REASON_EXPIRED,
    LeaseEnd.SUPERSEDED: lease_pb2.LEASE_END_REASON_SUPERSEDED,
    LeaseEnd.RELEASED: lease_pb2.LEASE_END_REASON_RELEASED,
    LeaseEnd.TAKEN_BACK: lease_pb2.LEASE_END_REASON_TAKEN_BACK,
    LeaseEnd.TASK_ENDED: lease_pb2.LEASE_END_REASON_TASK_ENDED,
}


def timestamp_of(at_ms: int) -> Timestamp:
    """An instant, whole milliseconds."""
    return Timestamp(seconds=at_ms // 1000, nanos=at_ms % 1000 * 1_000_000)


def write_instant(stamp: Timestamp, at_ms: int) -> None:
    """Sets an instant within its message: made apart from it, it would be copied."""
    stamp.seconds, milliseconds = divmod(at_ms, 1000)
    stamp.nanos = milliseconds * 1_000_000


def milliseconds_of(stamp: Timestamp) -> int:
    """An instant in epoch milliseconds, cut."""
    return int(stamp.seconds) * 1000 + int(stamp.nanos) // 1_000_000


def duration_of(span_ms: int) -> Duration:
    """A span that is not negative."""
    span_ms = max(0, span_ms)
    return Duration(seconds=span_ms // 1000, nanos=span_ms % 1000 * 1_000_000)


def milliseconds_of_duration(span: Duration) -> int:
    """A span in milliseconds, cut towards zero."""
    return int(span.seconds) * 1000 + int(int(span.nanos) / 1_000_000)


def driver_of(message: task_pb2.DriverRef) -> Driver:
    return Driver(message.id, message.version)


def drivers_of(messages: Sequence[task_pb2.DriverRef]) -> frozenset[Driver]:
    return frozenset(driver_of(message) for message in messages)


def driver_message(driver: Driver | None) -> task_pb2.DriverRef | None:
    return None if driver is None else task_pb2.DriverRef(id=driver.id, version=driver.version)


def status_message(record: TaskRecord) -> task_pb2.TaskStatus:
    """Where a task stands, which answers every write."""
    message = task_pb2.TaskStatus()
    write_status(message, record)
    return message


def write_status(message: task_pb2.TaskStatus, record: TaskRecord) -> None:
    """Sets where a task stands within the answer that it belongs to."""
    message.task_id = record.definition.id
    message.state = TASK_STATES[record.state]
    message.revision = record.revision
    write_instant(message.update_time, record.updated_at_ms)


def holder_of(caller: Caller, lease: lease_pb2.LeaseRef) -> Holder:
    return caller.holder(lease.worker_id, lease.fence)


def lease_message(lease: Lease, now_ms: int) -> lease_pb2.Lease:
    return lease_pb2.Lease(
        worker_id=worker_of(lease.worker_id),
        fence=lease.fence,
        remaining=duration_of(lease.expires_at_ms - now_ms),
        expire_time=timestamp_of(lease.expires_at_ms),
    )


def verdict_message(lease: lease_pb2.LeaseRef, verdict: LeaseVerdict) -> lease_pb2.LeaseVerdict:
    """The word on a lease, as its holder has named it."""
    message = lease_pb2.LeaseVerdict(
        lease=lease, state=LEASE_STATES[verdict.state], end_reason=LEASE_ENDS[verdict.end]
    )
    if verdict.state in {LeaseState.ACTIVE, LeaseState.CANCEL_REQUESTED}:
        message.remaining.CopyFrom(duration_of(verdict.remaining_ms))
    return message
