"""The ledger of outside effects: written down before they are attempted."""

from dataclasses import dataclass, replace

from durable_service.core.binding import idempotency_key, prepared_hash
from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.errors import DomainError, Reason, invalid
from durable_service.core.guards import recovery_required, require_running, working_lease
from durable_service.core.identifiers import checked_identifier, checked_integer, checked_repeat_id
from durable_service.core.limits import TASK_BYTES
from durable_service.core.model import Action, Approval, Holder, RejectionCause, TaskRecord, with_entry
from durable_service.core.record_size import checked_size
from durable_service.core.states import OPEN, ActionState, ApprovalDecision, TaskState
from durable_service.core.step import Decision, Step, unchanged

BEFORE_DISPATCH_EVIDENCE = "local:cancelled-before-dispatch"


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Who has to say yes, and until when the effect may be begun; `approval_id` is fresh and random."""

    approval_id: str
    actor_id: str
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """An effect as the handler asks for it; the id is the same whenever the handler runs again."""

    id: str
    connector_version: str
    destination: str
    args: CanonicalJson
    approval: ApprovalRequest | None = None


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Go ahead: the intent is written down."""

    action: Action


@dataclass(frozen=True, slots=True)
class AlreadyConfirmed:
    """It happened before; here is what came of it. Do not do it again."""

    result_ref: str


@dataclass(frozen=True, slots=True)
class Suspended:
    """The approval is pending: the task is suspended. Release the lease."""

    approval_id: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """It will not be done under this id."""

    cause: RejectionCause


DispatchAnswer = Dispatch | AlreadyConfirmed | Suspended | Rejected


def prepare(
    record: TaskRecord, holder: Holder, request: ActionRequest, now_ms: int, limit_bytes: int = TASK_BYTES
) -> Decision[Action]:
    """Binds an effect to exactly what it will do.

    The same id with the same binding is the stored action, whatever its state and whatever approval the
    repeat asks for.

    Raises:
        DomainError: LEASE_LOST, CANCEL_REQUESTED, TASK_NOT_RUNNING, ACTION_MISMATCH with both hashes,
            APPROVAL_EXPIRY, INVALID_IDENTIFIER, TASK_TOO_LARGE.
    """
    _check_request(request)
    working_lease(record, holder, now_ms)
    require_running(record)
    bound = prepared_hash(record.definition, request.connector_version, request.destination, request.args)
    step = Step(record, now_ms)
    present = record.actions.get(request.id)
    if present is not None:
        if present.prepared_hash != bound:
            raise DomainError(
                Reason.ACTION_MISMATCH,
                "the action id is taken by other arguments",
                {"existing_hash": present.prepared_hash, "requested_hash": bound},
            )
        return step.decision(present)
    action = _new_action(record, request, bound, now_ms)
    step.put_action(action)
    step.journal(f"action.{action.state}", {"actionId": action.id, "preparedHash": bound})
    if request.approval is not None:
        _ask_approval(step, action, request.approval)
    checked_size(step.record, limit_bytes)
    return step.decision(action)


def begin_dispatch(
    record: TaskRecord,
    holder: Holder,
    action_id: str,
    dispatch_id: str,
    connector_version: str,
    now_ms: int,
) -> Decision[DispatchAnswer]:
    """Writes the intent down, which has to happen before the connector is called.

    The same dispatch id under the same lease gets the same answer: a lost answer does not strand an effect
    that was never sent. An approval is used up in the same write.

    Raises:
        DomainError: LEASE_LOST, ACTION_NOT_FOUND, CONNECTOR_VERSION, RECOVERY_REQUIRED, ACTION_SETTLED,
            CANCEL_REQUESTED, TASK_NOT_RUNNING, INVALID_IDENTIFIER.
    """
    checked_repeat_id(dispatch_id, "dispatchId")
    working_lease(record, holder, now_ms)
    action = action_of(record, action_id)
    if action.connector_version != connector_version:
        raise DomainError(Reason.CONNECTOR_VERSION, "the action was prepared for another connector version")
    if (known := _known_answer(record, action, holder, dispatch_id)) is not None:
        return unchanged(record, known)
    require_running(record)
    if record.finish_deadline_ms is not None and record.finish_deadline_ms <= now_ms:
        # The request to cancel that this brings is about to be written; nothing may be begun meanwhile.
        raise DomainError(Reason.CANCEL_REQUESTED, "the task is overdue", {"state": record.state.value})
    if action.state in OPEN:
        raise recovery_required([(action.id, action.state)])
    if action.state in {ActionState.REJECTED, ActionState.CANCELED}:
        raise settled(action)
    step = Step(record, now_ms)
    return step.decision(_dispatched(step, action, holder, dispatch_id))


def confirm(
    record: TaskRecord,
    holder: Holder,
    action_id: str,
    result_ref: str,
    now_ms: int,
    *,
    dispatch_id: str | None = None,
) -> Decision[Action]:
    """The effect has happened. It is written down in every state of the task, cancelled or not.

    Args:
        dispatch_id: of the dispatch that did it. A word on an earlier dispatch says nothing of a later one.

    Raises:
        DomainError: LEASE_LOST, TASK_NOT_RUNNING, ACTION_NOT_FOUND, RECOVERY_REQUIRED for an unknown action,
            ACTION_SETTLED, ILLEGAL_TRANSITION, INVALID_IDENTIFIER.
    """
    checked_identifier(result_ref, "resultRef")
    working_lease(record, holder, now_ms)
    action = action_of(record, action_id)
    if action.state is ActionState.CONFIRMED and action.result_ref == result_ref:
        return unchanged(record, action)
    _require_executing(action, dispatch_id)
    step = Step(record, now_ms)
    data = {"resultRef": result_ref}
    return step.decision(step.move_action(action, ActionState.CONFIRMED, data, result_ref=result_ref))


def mark_unknown(
    record: TaskRecord, holder: Holder, action_id: str, now_ms: int, *, dispatch_id: str | None = None
) -> Decision[Action]:
    """The effect may or may not have happened; only evidence settles it from here on.

    Raises:
        DomainError: LEASE_LOST, TASK_NOT_RUNNING, ACTION_NOT_FOUND, ACTION_SETTLED, ILLEGAL_TRANSITION.
    """
    working_lease(record, holder, now_ms)
    action = action_of(record, action_id)
    if action.state is ActionState.UNKNOWN:
        return unchanged(record, action)
    _require_executing(action, dispatch_id)
    step = Step(record, now_ms)
    return step.decision(step.move_action(action, ActionState.UNKNOWN, {"cause": "reported"}))


def abort_dispatch(
    record: TaskRecord, holder: Holder, action_id: str, now_ms: int, *, dispatch_id: str | None = None
) -> Decision[Action]:
    """The holder knows that it never called the connector: the effect is given up and its id is spent.

    Raises:
        DomainError: LEASE_LOST, TASK_NOT_RUNNING, ACTION_NOT_FOUND, RECOVERY_REQUIRED for an unknown action,
            ACTION_SETTLED, ILLEGAL_TRANSITION.
    """
    working_lease(record, holder, now_ms)
    action = action_of(record, action_id)
    if action.state is ActionState.CANCELED and action.evidence_ref == BEFORE_DISPATCH_EVIDENCE:
        return unchanged(record, action)
    _require_executing(action, dispatch_id)
    step = Step(record, now_ms)
    aborted = step.move_action(
        action,
        ActionState.CANCELED,
        {"evidenceRef": BEFORE_DISPATCH_EVIDENCE},
        evidence_ref=BEFORE_DISPATCH_EVIDENCE,
    )
    return step.decision(aborted)


def action_of(record: TaskRecord, action_id: str) -> Action:
    """The action of that id.

    Raises:
        DomainError: ACTION_NOT_FOUND.
    """
    action = record.actions.get(action_id)
    if action is None:
        raise DomainError(Reason.ACTION_NOT_FOUND, "the task has no such action")
    return action


def settled(action: Action) -> DomainError:
    return DomainError(
        Reason.ACTION_SETTLED, "the action has ended and its id is spent", {"state": action.state.value}
    )


def _require_executing(action: Action, dispatch_id: str | None) -> None:
    if action.state is ActionState.EXECUTING:
        if dispatch_id not in {None, action.dispatch_id}:
            raise DomainError(
                Reason.ILLEGAL_TRANSITION,
                "the action is executed by another dispatch",
                {"state": action.state.value},
            )
        return
    if action.state is ActionState.UNKNOWN:
        raise recovery_required([(action.id, action.state)])
    if action.state in {ActionState.PREPARED, ActionState.AWAITING_APPROVAL}:
        raise DomainError(
            Reason.ILLEGAL_TRANSITION, "the action is not dispatched", {"state": action.state.value}
        )
    raise settled(action)


def _check_request(request: ActionRequest) -> None:
    checked_identifier(request.id, "actionId")
    checked_identifier(request.connector_version, "connectorVersion")
    checked_identifier(request.destination, "destination")
    if request.approval is not None:
        checked_identifier(request.approval.actor_id, "approval.actorId")
        checked_integer(request.approval.expires_at_ms, "approval.expiresAt")


def _new_action(record: TaskRecord, request: ActionRequest, bound: str, now_ms: int) -> Action:
    return Action(
        request.id,
        request.connector_version,
        request.destination,
        request.args,
        bound,
        idempotency_key(record.key, request.id, bound),
        ActionState.PREPARED if request.approval is None else ActionState.AWAITING_APPROVAL,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        approval_id=None if request.approval is None else request.approval.approval_id,
    )


def _ask_approval(step: Step, action: Action, request: ApprovalRequest) -> None:
    if request.expires_at_ms <= step.now_ms:
        raise invalid(Reason.APPROVAL_EXPIRY, "approval.expiresAt", "must be in the future")
    approval = Approval(
        request.approval_id,
        action.id,
        request.actor_id,
        action.prepared_hash,
        step.record.definition.policy_revision,
        request.expires_at_ms,
        step.now_ms,
    )
    step.change(approvals=with_entry(step.record.approvals, approval.id, approval))
    step.journal(
        "approval.requested",
        {"actionId": action.id, "approvalId": approval.id, "expiresAt": approval.expires_at_ms},
    )


def _known_answer(
    record: TaskRecord, action: Action, holder: Holder, dispatch_id: str
) -> DispatchAnswer | None:
    """The answer that needs no write, None when there is something to decide."""
    repeated = (action.dispatch_fence, action.dispatch_id) == (holder.fence, dispatch_id)
    if action.state is ActionState.CONFIRMED and action.result_ref is not None:
        return AlreadyConfirmed(action.result_ref)
    if repeated and action.state is ActionState.EXECUTING:
        return Dispatch(action)
    if action.rejection is not None:
        # Whenever the handler runs again: one that goes on without the effect has to be told the same.
        return Rejected(action.rejection)
    if record.state is TaskState.AWAITING_APPROVAL and action.state is ActionState.AWAITING_APPROVAL:
        return Suspended(action.approval_id or "")
    return None


def _dispatched(step: Step, action: Action, holder: Holder, dispatch_id: str) -> DispatchAnswer:
    mark = {"dispatch_fence": holder.fence, "dispatch_id": dispatch_id}
    data = {"fence": holder.fence}
    approval = None if action.approval_id is None else step.record.approvals[action.approval_id]
    if approval is not None:
        cause = _rejection(approval, action, step.record, step.now_ms)
        if cause is not None:
            step.move_action(action, ActionState.REJECTED, {**data, "cause": cause}, rejection=cause, **mark)
            return Rejected(cause)
        if approval.decision is ApprovalDecision.PENDING:
            step.move(TaskState.AWAITING_APPROVAL)
            return Suspended(approval.id)
        # Used up in the very write that begins the effect, so that one yes is one effect.
        used = replace(approval, consumed=True)
        step.change(approvals=with_entry(step.record.approvals, approval.id, used))
    return Dispatch(step.move_action(action, ActionState.EXECUTING, data, **mark))


def _rejection(approval: Approval, action: Action, record: TaskRecord, now_ms: int) -> RejectionCause | None:
    if approval.decision is ApprovalDecision.DENIED:
        return RejectionCause.APPROVAL_DENIED
    if approval.consumed:
        return RejectionCause.APPROVAL_CONSUMED
    if approval.expires_at_ms <= now_ms:
        return RejectionCause.APPROVAL_EXPIRED
    bound = (action.prepared_hash, record.definition.policy_revision)
    if (approval.prepared_hash, approval.policy_revision) != bound:
        return RejectionCause.APPROVAL_BINDING
    return None
