"""What time alone makes of a task. Every bound is inclusive: at the instant itself it is over."""

from dataclasses import replace

from durable_service.core.model import Approval, TaskRecord, with_entry
from durable_service.core.states import UNSENT, ActionState, ApprovalDecision, TaskState
from durable_service.core.step import Decision, Step

START_DEADLINE_REASON = "not claimed before its start deadline"
FINISH_DEADLINE_REASON = "not finished before its deadline"


def due_at_ms(record: TaskRecord) -> int | None:
    """The first instant at which time changes this task; None when never."""
    if record.terminal:
        return None
    instants = [approval.expires_at_ms for approval in _untold(record)]
    if record.lease is not None:
        instants.append(record.lease.expires_at_ms)
    if record.start_deadline_ms is not None and record.state is TaskState.QUEUED:
        instants.append(record.start_deadline_ms)
    if record.finish_deadline_ms is not None and record.state is not TaskState.CANCEL_REQUESTED:
        instants.append(record.finish_deadline_ms)
    return min(instants, default=None)


def lapse(record: TaskRecord, now_ms: int) -> Decision[None]:
    """Writes down what is over by now; changes nothing when nothing is.

    It gives nobody a lease and sends nothing again: it only says what the next claim would find.
    """
    step = Step(record, now_ms)
    pass_time(step)
    return step.decision_if_changed(None)


def pass_time(step: Step) -> None:
    """The part of `lapse` that commands begin with: they decide about what is true now."""
    if step.record.terminal:
        return
    _end_lapsed_lease(step)
    _tell_expired_approvals(step)
    _request_overdue_cancellation(step)
    acknowledge_if_free(step)


def acknowledge_if_free(step: Step) -> None:
    """A requested cancellation needs nobody's word when nobody holds the task and no outcome is open."""
    record = step.record
    if record.state is not TaskState.CANCEL_REQUESTED or record.live_lease(step.now_ms):
        return
    if not any(record.open_actions()):
        cancel_unsent(step)
        step.move(TaskState.CANCELED)


def cancel_unsent(step: Step) -> None:
    """Effects that were not begun will not happen."""
    for action in tuple(step.record.actions.values()):
        if action.state in UNSENT:
            step.move_action(action, ActionState.CANCELED, {"cause": "task_canceled"})


def forget_outcomes(step: Step) -> None:
    """Nobody is left who could say what came of a dispatch: from here on that takes evidence."""
    for action in tuple(step.record.actions.values()):
        if action.state is ActionState.EXECUTING:
            step.move_action(action, ActionState.UNKNOWN, {"cause": "lease_ended"})


def request_cancellation(step: Step, reason: str) -> None:
    step.change(cancel_reason=reason)
    step.move(TaskState.CANCEL_REQUESTED)


def _end_lapsed_lease(step: Step) -> None:
    lease = step.record.lease
    if lease is None or lease.expires_at_ms > step.now_ms:
        return
    step.change(lease=None)
    step.journal("lease.expired", {"fence": lease.fence, "workerId": lease.worker_id})
    forget_outcomes(step)


def _tell_expired_approvals(step: Step) -> None:
    for approval in _untold(step.record):
        if approval.expires_at_ms <= step.now_ms:
            told = replace(approval, lapse_told=True)
            step.change(approvals=with_entry(step.record.approvals, approval.id, told))
            step.journal("approval.expired", {"actionId": approval.action_id, "approvalId": approval.id})


def _request_overdue_cancellation(step: Step) -> None:
    record = step.record
    if record.state is TaskState.CANCEL_REQUESTED:
        return
    finish, start = record.finish_deadline_ms, record.start_deadline_ms
    if finish is not None and finish <= step.now_ms:
        request_cancellation(step, FINISH_DEADLINE_REASON)
    elif record.state is TaskState.QUEUED and start is not None and start <= step.now_ms:
        request_cancellation(step, START_DEADLINE_REASON)


def _untold(record: TaskRecord) -> list[Approval]:
    return [
        approval
        for approval in record.approvals.values()
        if approval.decision is ApprovalDecision.PENDING and not approval.lapse_told
    ]
