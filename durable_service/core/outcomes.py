"""How a task ends, and how its end is asked for."""

from dataclasses import dataclass

from durable_service.core.errors import DomainError, Reason
from durable_service.core.guards import held_lease, require_no_action_in, require_running, working_lease
from durable_service.core.identifiers import checked_identifier, cut_note
from durable_service.core.lapses import acknowledge_if_free, cancel_unsent, pass_time, request_cancellation
from durable_service.core.leases import end_lease, settled_by
from durable_service.core.model import Ending, Holder, TaskRecord
from durable_service.core.states import OPEN, ActionState, TaskState
from durable_service.core.step import Decision, Step, unchanged

DEFAULT_CANCEL_REASON = "Host requested cancellation"
DEFAULT_FAILURE = "Durable handler failed"

_UNFINISHED = OPEN | {ActionState.AWAITING_APPROVAL}


@dataclass(frozen=True, slots=True)
class Ended:
    """How the task ended: a success that comes after a request to cancel is `canceled`."""

    state: TaskState


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """`requested` is False when the task had ended or was being cancelled already."""

    state: TaskState
    requested: bool


def complete(
    record: TaskRecord, holder: Holder, result_ref: str | None, now_ms: int, *, stopped: bool = False
) -> Decision[Ended]:
    """The handler has finished; `stopped` when it asks to end without having done the work.

    Raises:
        DomainError: LEASE_LOST, RECOVERY_REQUIRED with the actions that are open or wait for an approval,
            TASK_NOT_RUNNING, INVALID_IDENTIFIER.
    """
    if result_ref:
        checked_identifier(result_ref, "resultRef")
    ending = Ending.STOPPED if stopped else Ending.COMPLETED
    if _was_ended_by(record, holder, ending, result_ref or None):
        return unchanged(record, Ended(record.state))
    working_lease(record, holder, now_ms)
    if record.state is TaskState.CANCEL_REQUESTED:
        return _canceled(record, holder, now_ms)
    require_running(record)
    require_no_action_in(record, _UNFINISHED)
    step = Step(record, now_ms)
    step.change(result_ref=result_ref or None)
    end_lease(step, holder, ending, result_ref or None)
    step.move(TaskState.STOPPED if stopped else TaskState.COMPLETED)
    return step.decision(Ended(step.record.state))


def fail(record: TaskRecord, holder: Holder, failure: str, now_ms: int) -> Decision[Ended]:
    """The handler has failed, which is final.

    Args:
        failure: why; cut to 4,096 bytes.

    Raises:
        DomainError: LEASE_LOST, RECOVERY_REQUIRED with the open actions, TASK_NOT_RUNNING.
    """
    if _was_ended_by(record, holder, Ending.FAILED, None):
        return unchanged(record, Ended(record.state))
    working_lease(record, holder, now_ms)
    if record.state is TaskState.CANCEL_REQUESTED:
        return _canceled(record, holder, now_ms)
    require_running(record)
    require_no_action_in(record, OPEN)
    step = Step(record, now_ms)
    step.change(failure=cut_note(failure) or DEFAULT_FAILURE)
    end_lease(step, holder, Ending.FAILED)
    step.move(TaskState.FAILED)
    return step.decision(Ended(TaskState.FAILED))


def cancel(record: TaskRecord, reason: str, now_ms: int) -> Decision[CancelAnswer]:
    """Asks for the end of a task, in any state and without a lease; the first reason stays.

    It ends at once when nobody holds it and no outcome is open. Otherwise it waits for its holder, or for
    evidence.
    """
    step = Step(record, now_ms)
    pass_time(step)
    requested = not step.record.terminal and step.record.state is not TaskState.CANCEL_REQUESTED
    if requested:
        request_cancellation(step, cut_note(reason) or DEFAULT_CANCEL_REASON)
        acknowledge_if_free(step)
    return step.decision(CancelAnswer(step.record.state, requested))


def acknowledge_cancellation(record: TaskRecord, holder: Holder, now_ms: int) -> Decision[Ended]:
    """The holder has stopped; a repeat changes nothing.

    Raises:
        DomainError: LEASE_LOST, CANCEL_NOT_REQUESTED, RECOVERY_REQUIRED with the open actions.
    """
    if record.state is TaskState.CANCELED and settled_by(record, holder, Ending.CANCELED):
        return unchanged(record, Ended(record.state))
    held_lease(record, holder, now_ms)
    if record.state is not TaskState.CANCEL_REQUESTED:
        raise DomainError(
            Reason.CANCEL_NOT_REQUESTED, "nobody asked to cancel the task", {"state": record.state.value}
        )
    return _canceled(record, holder, now_ms)


def _canceled(record: TaskRecord, holder: Holder, now_ms: int) -> Decision[Ended]:
    require_no_action_in(record, OPEN)
    step = Step(record, now_ms)
    end_lease(step, holder, Ending.CANCELED)
    cancel_unsent(step)
    step.move(TaskState.CANCELED)
    return step.decision(Ended(TaskState.CANCELED))


def _was_ended_by(record: TaskRecord, holder: Holder, ending: Ending, result_ref: str | None) -> bool:
    if not record.terminal or not settled_by(record, holder):
        return False
    # A late success or failure was answered with `canceled`, and is so again.
    if settled_by(record, holder, Ending.CANCELED):
        return True
    settlement = record.settlement
    return settlement is not None and (settlement.ending, settlement.result_ref) == (ending, result_ref)
