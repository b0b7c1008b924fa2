"""One actor's word on exactly one effect."""

from dataclasses import dataclass, replace

from durable_service.core.errors import DomainError, Reason
from durable_service.core.identifiers import cut_note
from durable_service.core.model import Approval, TaskRecord, with_entry
from durable_service.core.states import ApprovalDecision, TaskState
from durable_service.core.step import Decision, Step, unchanged


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision as it is made; the actor comes from its credential."""

    approval_id: str
    actor_id: str
    prepared_hash: str
    approved: bool
    note: str = ""


@dataclass(frozen=True, slots=True)
class Decided:
    """The approval as it stands; `already_decided` for the repeat of the same decision."""

    approval: Approval
    already_decided: bool


def approval_for(record: TaskRecord, approval_id: str, actor_id: str) -> Approval:
    """The approval, when it is addressed to this actor.

    Raises:
        DomainError: APPROVAL_NOT_FOUND.
    """
    approval = record.approvals.get(approval_id)
    if approval is None or approval.actor_id != actor_id:
        raise DomainError(Reason.APPROVAL_NOT_FOUND, "there is no such approval for this caller")
    return approval


def approvable(record: TaskRecord) -> bool:
    """Whether there is anything left to approve."""
    return not record.terminal and record.state is not TaskState.CANCEL_REQUESTED


def decide(record: TaskRecord, verdict: Verdict, now_ms: int) -> Decision[Decided]:
    """Approves or denies; it needs no lease and does not change the state of the task.

    An approval has to be used before it expires as well: a late dispatch is rejected.

    Raises:
        DomainError: APPROVAL_NOT_FOUND; APPROVAL_BINDING, which does not tell whether the hash is another,
            or the approval expired or used; APPROVAL_DECIDED the other way; NOT_APPROVABLE.
    """
    approval = approval_for(record, verdict.approval_id, verdict.actor_id)
    decision = ApprovalDecision.APPROVED if verdict.approved else ApprovalDecision.DENIED
    if approval.prepared_hash != verdict.prepared_hash:
        raise _unbound()
    if approval.decision is decision:
        return unchanged(record, Decided(approval, already_decided=True))
    if not approvable(record):
        raise DomainError(Reason.NOT_APPROVABLE, "nothing is left to approve")
    if approval.decision is not ApprovalDecision.PENDING:
        raise DomainError(Reason.APPROVAL_DECIDED, "the approval was decided the other way")
    if not approval.pending(now_ms) or approval.consumed:
        raise _unbound()
    decided = replace(approval, decision=decision, decided_at_ms=now_ms, note=cut_note(verdict.note) or None)
    step = Step(record, now_ms)
    step.change(approvals=with_entry(record.approvals, approval.id, decided))
    step.journal(
        "approval.decided",
        {"actionId": approval.action_id, "approvalId": approval.id, "decision": decision},
    )
    return step.decision(Decided(decided, already_decided=False))


def _unbound() -> DomainError:
    return DomainError(Reason.APPROVAL_BINDING, "the decision does not fit the approval")
