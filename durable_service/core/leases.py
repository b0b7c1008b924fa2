"""What a holder does with its lease."""

from dataclasses import replace

from durable_service.core.errors import DomainError, Reason
from durable_service.core.guards import held_lease, require_no_action_in, require_running, working_lease
from durable_service.core.identifiers import checked_integer, cut_note
from durable_service.core.lapses import acknowledge_if_free, forget_outcomes
from durable_service.core.limits import MAXIMUM_LEASE_MS, MINIMUM_LEASE_MS
from durable_service.core.model import Ending, Holder, Lease, Settlement, TaskRecord
from durable_service.core.states import OPEN
from durable_service.core.step import Decision, Step, unchanged


def renew(record: TaskRecord, holder: Holder, lease_ms: int, now_ms: int) -> Decision[Lease]:
    """Makes the lease last that much longer, counted from now; the revision stays.

    Raises:
        DomainError: LEASE_LOST, TASK_TERMINAL, INVALID_INTEGER.
    """
    checked_integer(lease_ms, "leaseMs", MINIMUM_LEASE_MS, MAXIMUM_LEASE_MS)
    lease = held_lease(record, holder, now_ms)
    if record.terminal:
        raise DomainError(Reason.TASK_TERMINAL, "the task has ended", {"state": record.state.value})
    step = Step(record, now_ms)
    renewed = replace(lease, expires_at_ms=now_ms + lease_ms)
    step.change(lease=renewed)
    return step.unrevised(renewed)


def release(
    record: TaskRecord, holder: Holder, now_ms: int, ending: Ending = Ending.RELEASED
) -> Decision[None]:
    """Gives the lease back; the state stays, and a repeat changes nothing.

    The outcome of a dispatch that was not written down is unknown from here on. A requested cancellation
    is acknowledged with it when no outcome is open.

    Args:
        ending: RELEASED, or TAKEN_BACK.

    Raises:
        DomainError: LEASE_LOST.
    """
    if settled_by(record, holder):
        return unchanged(record, None)
    held_lease(record, holder, now_ms)
    step = Step(record, now_ms)
    end_lease(step, holder, ending)
    forget_outcomes(step)
    acknowledge_if_free(step)
    return step.decision(None)


def yield_task(
    record: TaskRecord, holder: Holder, not_before_ms: int, reason: str, now_ms: int
) -> Decision[None]:
    """Gives the lease back until an instant: a timer, or the pause before another try.

    Raises:
        DomainError: LEASE_LOST, RECOVERY_REQUIRED, CANCEL_REQUESTED, TASK_TERMINAL, TASK_NOT_RUNNING,
            INVALID_INTEGER.
    """
    checked_integer(not_before_ms, "notBefore")
    if settled_by(record, holder, Ending.YIELDED):
        return unchanged(record, None)
    working_lease(record, holder, now_ms)
    require_running(record)
    require_no_action_in(record, OPEN)
    step = Step(record, now_ms)
    step.change(not_before_ms=not_before_ms)
    end_lease(step, holder, Ending.YIELDED)
    step.journal("task.yielded", {"notBefore": not_before_ms, "reason": cut_note(reason)})
    return step.decision(None)


def end_lease(step: Step, holder: Holder, ending: Ending, result_ref: str | None = None) -> None:
    """Takes the lease away by its holder's own act, which is remembered so that a repeat is recognised."""
    step.change(lease=None, settlement=Settlement(holder.worker_id, holder.fence, ending, result_ref))
    if ending in {Ending.RELEASED, Ending.TAKEN_BACK, Ending.YIELDED}:
        step.journal("lease.released", {"fence": holder.fence, "workerId": holder.worker_id})


def settled_by(record: TaskRecord, holder: Holder, ending: Ending | None = None) -> bool:
    """Whether the newest lease was this holder's, and it ended it itself (in this way)."""
    settlement = record.settlement
    return (
        settlement is not None
        and record.fence == holder.fence
        and (settlement.worker_id, settlement.fence) == (holder.worker_id, holder.fence)
        and (ending is None or settlement.ending is ending)
    )
