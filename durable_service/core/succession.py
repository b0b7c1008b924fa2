"""What every update must leave as it was, whoever made it: the last line before a record is stored."""

from durable_service.core.errors import DomainError, Reason
from durable_service.core.model import Action, Approval, TaskRecord
from durable_service.core.revision import differs_in_lease_alone
from durable_service.core.states import (
    ACTION_MOVES,
    TASK_MOVES,
    UNSENT,
    ActionState,
    ApprovalDecision,
    TaskState,
)

_FROZEN_OF_ACTION = (
    "id",
    "connector_version",
    "destination",
    "args",
    "prepared_hash",
    "idempotency_key",
    "created_at_ms",
    "approval_id",
)
_FROZEN_OF_APPROVAL = (
    "id",
    "action_id",
    "actor_id",
    "prepared_hash",
    "policy_revision",
    "expires_at_ms",
    "created_at_ms",
)


def check_succession(before: TaskRecord, after: TaskRecord) -> None:
    """Refuses a record that no command could have made of the one before.

    Raises:
        DomainError: INVARIANT or ILLEGAL_TRANSITION; both are faults of this program.
    """
    _check_frozen(before, after)
    _check_counters(before, after)
    _check_lease(before, after)
    if after.actions is not before.actions:
        _check_actions(before, after)
    if after.approvals is not before.approvals:
        _check_approvals(before, after)


def _require(holds: bool, message: str) -> None:  # noqa: FBT001 - it reads as an assertion
    if not holds:
        raise DomainError(Reason.INVARIANT, message)


def _check_frozen(before: TaskRecord, after: TaskRecord) -> None:
    same = before.definition is after.definition or before.definition == after.definition
    _require(same and before.digest == after.digest, "the definition of a task was changed")
    _require(before.created_at_ms == after.created_at_ms, "the creation of a task was moved")
    if after.state is not before.state and not _leads_to(before.state, after.state):
        raise _illegal(before.state, after.state)
    kept = after.attempts is before.attempts or after.attempts[: len(before.attempts)] == before.attempts
    _require(kept, "an attempt was rewritten")
    _require(
        after.reservations is before.reservations
        or before.reservations.items() <= after.reservations.items(),
        "a reservation was rewritten",
    )


def _leads_to(old: TaskState, new: TaskState) -> bool:
    # Two moves in one write: a cancellation that nobody has to acknowledge.
    at_once = new is TaskState.CANCELED and TaskState.CANCEL_REQUESTED in TASK_MOVES[old]
    return new in TASK_MOVES[old] or at_once


def _check_counters(before: TaskRecord, after: TaskRecord) -> None:
    _require(after.revision - before.revision in {0, 1}, "the revision does not follow")
    if after.revision == before.revision:
        # A store writes the lease alone when the revision stays.
        _require(differs_in_lease_alone(before, after), "a change without a revision")
    _require(after.last_sequence >= before.last_sequence, "the journal went back")
    _require(after.reserved_tokens >= before.reserved_tokens, "reserved tokens were given back")
    _require(after.reserved_cost_micros >= before.reserved_cost_micros, "reserved cost was given back")
    budget = after.definition.budget
    _require(after.reserved_tokens <= budget.max_tokens, "more tokens are reserved than there are")
    _require(after.reserved_cost_micros <= budget.max_cost_micros, "more cost is reserved than there is")
    allowed = budget.max_attempts + after.grace_attempts
    _require(len(after.attempts) <= allowed, "there are more attempts than allowed")


def _check_lease(before: TaskRecord, after: TaskRecord) -> None:
    _require(after.fence - before.fence in {0, 1}, "the fence does not follow")
    _require(after.lease is None or after.lease.fence == after.fence, "the lease has another fence")
    if after.fence != before.fence:
        _require(after.lease is not None, "the fence rose without a lease")


def _check_actions(before: TaskRecord, after: TaskRecord) -> None:
    for name, old in before.actions.items():
        new = after.actions.get(name)
        if new is not old:
            _check_action(old, new, after)
    for name in after.actions.keys() - before.actions.keys():
        _require(after.actions[name].state in UNSENT, "an action began in the middle")


def _check_action(old: Action, new: Action | None, after: TaskRecord) -> None:
    if new is None:
        raise DomainError(Reason.INVARIANT, "an action was deleted")
    for name in _FROZEN_OF_ACTION:
        _require(getattr(old, name) == getattr(new, name), f"{name} of an action was changed")
    _require(old.result_ref is None or old.result_ref == new.result_ref, "a result was replaced")
    if new.state is old.state:
        return
    # Two moves in one write: evidence that an executing effect is absent.
    twofold = old.state is ActionState.EXECUTING and new.state is ActionState.PREPARED
    if new.state not in ACTION_MOVES[old.state] and not twofold:
        raise _illegal(old.state, new.state)
    if new.state is ActionState.EXECUTING:
        _require(after.lease is not None and new.dispatch_fence == after.fence, "a dispatch without a lease")


def _check_approvals(before: TaskRecord, after: TaskRecord) -> None:
    for name, old in before.approvals.items():
        new = after.approvals.get(name)
        if new is not old:
            _check_approval(old, new)


def _check_approval(old: Approval, new: Approval | None) -> None:
    if new is None:
        raise DomainError(Reason.INVARIANT, "an approval was deleted")
    for name in _FROZEN_OF_APPROVAL:
        _require(getattr(old, name) == getattr(new, name), f"{name} of an approval was changed")
    _require(new.consumed or not old.consumed, "a used approval was given back")
    final = old.decision is not ApprovalDecision.PENDING
    _require(not final or old.decision is new.decision, "a decision was changed")


def _illegal(before: str, after: str) -> DomainError:
    return DomainError(
        Reason.ILLEGAL_TRANSITION, f"there is no way from {before} to {after}", {"state": before}
    )
