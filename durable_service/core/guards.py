"""What must hold before a worker may write."""

from durable_service.core.errors import DomainError, Reason, Violation
from durable_service.core.model import ClaimReason, Holder, Lease, TaskRecord
from durable_service.core.states import ActionState, TaskState


def held_lease(record: TaskRecord, holder: Holder, now_ms: int) -> Lease:
    """The lease, when it is this holder's and not over.

    Raises:
        DomainError: LEASE_LOST. The holder has to stop, not to repeat.
    """
    lease = record.live_lease(now_ms)
    if lease is None or (lease.worker_id, lease.fence) != (holder.worker_id, holder.fence):
        raise lease_lost(record, holder)
    return lease


def working_lease(record: TaskRecord, holder: Holder, now_ms: int) -> Lease:
    """The lease, when it is this holder's, not over, and one to do the task's work under.

    Under a lease to recover, outcomes are settled and nothing is begun or ended: no handler runs under it.

    Raises:
        DomainError: LEASE_LOST; TASK_NOT_RUNNING for a lease to recover.
    """
    lease = held_lease(record, holder, now_ms)
    if lease.reason is ClaimReason.RECOVERY:
        raise DomainError(
            Reason.TASK_NOT_RUNNING,
            "the lease is to recover the task alone: release it and claim the task normally",
            {"state": record.state.value},
        )
    return lease


def lease_lost(record: TaskRecord, holder: Holder) -> DomainError:
    return DomainError(
        Reason.LEASE_LOST,
        "the lease has expired, was given back or was replaced",
        {"fence": str(holder.fence), "current_fence": str(record.fence)},
    )


def require_running(record: TaskRecord) -> None:
    """Refuses unless the task is running.

    Raises:
        DomainError: CANCEL_REQUESTED, TASK_TERMINAL or TASK_NOT_RUNNING.
    """
    if record.state is TaskState.RUNNING:
        return
    details = {"state": record.state.value}
    if record.state is TaskState.CANCEL_REQUESTED:
        raise DomainError(Reason.CANCEL_REQUESTED, "cancellation of the task is requested", details)
    if record.terminal:
        raise DomainError(Reason.TASK_TERMINAL, "the task has ended", details)
    raise DomainError(Reason.TASK_NOT_RUNNING, "the task is not running", details)


def require_no_action_in(record: TaskRecord, states: frozenset[ActionState]) -> None:
    """Refuses while an action is in one of these states.

    Raises:
        DomainError: RECOVERY_REQUIRED, with the ids of the actions.
    """
    found = [action for action in record.actions.values() if action.state in states]
    if found:
        raise recovery_required([(action.id, action.state) for action in found])


def recovery_required(actions: list[tuple[str, ActionState]]) -> DomainError:
    return DomainError(
        Reason.RECOVERY_REQUIRED,
        "the outcome of an action is open: reconcile it first",
        {"action_ids": ",".join(sorted(name for name, _ in actions))},
        [Violation(name, f"is {state}") for name, state in sorted(actions)],
    )
