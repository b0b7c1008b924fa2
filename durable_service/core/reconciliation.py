"""The settling of open outcomes by evidence."""

from dataclasses import dataclass, replace
from enum import StrEnum

from durable_service.core.actions import action_of
from durable_service.core.errors import DomainError, Reason, invalid
from durable_service.core.guards import held_lease
from durable_service.core.identifiers import checked_identifier
from durable_service.core.model import Action, Holder, TaskRecord
from durable_service.core.states import OPEN, ActionState, TaskState
from durable_service.core.step import Decision, Step, unchanged


class Finding(StrEnum):
    """What a look-up has shown. `absent` is strong: the request cannot land later either."""

    CONFIRMED = "confirmed"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A finding with the reference to its proof; `result_ref` belongs to `confirmed` alone."""

    finding: Finding
    evidence_ref: str
    result_ref: str | None = None


def reconcile(
    record: TaskRecord,
    holder: Holder,
    action_id: str,
    prepared_hash: str,
    evidence: Evidence,
    now_ms: int,
) -> Decision[Action]:
    """Settles an effect that is executing or unknown, in any state of the task.

    After `absent` the effect may be sent again under the same idempotency key, or it is cancelled when the
    task is. The same evidence of absence counts once: its repeat never releases a later dispatch.

    Raises:
        DomainError: LEASE_LOST, ACTION_NOT_FOUND, ACTION_MISMATCH, NOT_UNKNOWN, INVALID_IDENTIFIER,
            FIELD_INVALID.
    """
    _check(evidence)
    held_lease(record, holder, now_ms)
    action = action_of(record, action_id)
    if action.prepared_hash != prepared_hash:
        raise DomainError(Reason.ACTION_MISMATCH, "the action is bound to another hash")
    if _is_repeat(action, evidence):
        return unchanged(record, action)
    if action.state not in OPEN or _spent(action, evidence):
        raise DomainError(Reason.NOT_UNKNOWN, "there is nothing to reconcile", {"state": action.state.value})
    step = Step(record, now_ms)
    settled = _settled(step, action, evidence)
    _grant_grace(step)
    return step.decision(settled)


def _check(evidence: Evidence) -> None:
    checked_identifier(evidence.evidence_ref, "evidenceRef")
    if evidence.finding is Finding.CONFIRMED:
        checked_identifier(evidence.result_ref or "", "resultRef")
    elif evidence.result_ref is not None:
        raise invalid(Reason.FIELD_INVALID, "resultRef", "belongs to a confirmed effect alone")


def _is_repeat(action: Action, evidence: Evidence) -> bool:
    if evidence.finding is Finding.ABSENT:
        released = action.state in {ActionState.PREPARED, ActionState.CANCELED}
        return released and _spent(action, evidence)
    if action.evidence_ref != evidence.evidence_ref:
        return False
    if evidence.finding is Finding.CONFIRMED:
        return action.state is ActionState.CONFIRMED and action.result_ref == evidence.result_ref
    return action.state is ActionState.UNKNOWN


def _spent(action: Action, evidence: Evidence) -> bool:
    return evidence.finding is Finding.ABSENT and action.absent_evidence_ref == evidence.evidence_ref


def _settled(step: Step, action: Action, evidence: Evidence) -> Action:
    proof = {"evidence_ref": evidence.evidence_ref}
    data = {"evidenceRef": evidence.evidence_ref}
    if evidence.finding is Finding.CONFIRMED:
        return step.move_action(
            action,
            ActionState.CONFIRMED,
            {**data, "resultRef": evidence.result_ref},
            result_ref=evidence.result_ref,
            **proof,
        )
    if evidence.finding is Finding.ABSENT:
        return _absent(step, action, data, {**proof, "absent_evidence_ref": evidence.evidence_ref})
    if action.state is ActionState.EXECUTING:
        return step.move_action(action, ActionState.UNKNOWN, {**data, "cause": "reconciled"}, **proof)
    return _looked_up(step, action, evidence.evidence_ref)


def _absent(step: Step, action: Action, data: dict[str, str], proof: dict[str, str]) -> Action:
    if step.record.state is TaskState.CANCEL_REQUESTED:
        return step.move_action(action, ActionState.CANCELED, data, **proof)
    if action.state is ActionState.EXECUTING:
        # The table has no way from executing back to prepared: both moves, in one write.
        action = step.move_action(action, ActionState.UNKNOWN, {**data, "cause": "reconciled"})
    return step.move_action(action, ActionState.PREPARED, data, **proof)


def _looked_up(step: Step, action: Action, evidence_ref: str) -> Action:
    # Still unknown; the look-up itself is kept.
    looked_up = replace(action, evidence_ref=evidence_ref)
    step.put_action(looked_up)
    step.journal("action.looked_up", {"actionId": action.id, "evidenceRef": evidence_ref})
    return looked_up


def _grant_grace(step: Step) -> None:
    """A task whose last outcome is settled may finish, even when crashes have used up its attempts."""
    record = step.record
    if record.exhausted and record.state is not TaskState.CANCEL_REQUESTED and not any(record.open_actions()):
        step.change(grace_attempts=record.grace_attempts + 1)
