"""The word on a lease that its holder names, and the facts about a task beside its state."""

from dataclasses import dataclass
from enum import StrEnum

from durable_service.core.availability import Queue, availability
from durable_service.core.leases import settled_by
from durable_service.core.model import Ending, Holder, TaskRecord
from durable_service.core.states import ApprovalDecision, TaskState


class LeaseState(StrEnum):
    """Whether the work may go on."""

    ACTIVE = "active"
    CANCEL_REQUESTED = "cancel_requested"
    LOST = "lost"
    COMPLETED = "completed"


class LeaseEnd(StrEnum):
    """Why a lease is lost."""

    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    RELEASED = "released"
    TAKEN_BACK = "taken_back"
    TASK_ENDED = "task_ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LeaseVerdict:
    """The store's word; `remaining_ms` while it is held, `end` when it is lost."""

    state: LeaseState
    remaining_ms: int = 0
    end: LeaseEnd | None = None


class Condition(StrEnum):
    """A fact about a task that is derived when it is read."""

    LEASED = "leased"
    LEASE_EXPIRED = "lease_expired"
    RECOVERY_REQUIRED = "recovery_required"
    APPROVAL_PENDING = "approval_pending"
    APPROVAL_DECIDED = "approval_decided"
    BUDGET_EXHAUSTED = "budget_exhausted"
    NOT_BEFORE = "not_before"
    CLAIMABLE = "claimable"


def verdict(record: TaskRecord | None, holder: Holder, now_ms: int) -> LeaseVerdict:
    """What a holder is told of the lease that it names; a task that is not there is lost."""
    if record is None or holder.fence > record.fence:
        return LeaseVerdict(LeaseState.LOST, end=LeaseEnd.UNKNOWN)
    lease = record.live_lease(now_ms)
    if lease is not None and (lease.worker_id, lease.fence) == (holder.worker_id, holder.fence):
        canceling = record.state is TaskState.CANCEL_REQUESTED
        state = LeaseState.CANCEL_REQUESTED if canceling else LeaseState.ACTIVE
        return LeaseVerdict(state, lease.expires_at_ms - now_ms)
    if settled_by(record, holder, Ending.TAKEN_BACK):
        return LeaseVerdict(LeaseState.LOST, end=LeaseEnd.TAKEN_BACK)
    if settled_by(record, holder):
        given_back = settled_by(record, holder, Ending.RELEASED) or settled_by(record, holder, Ending.YIELDED)
        if given_back:
            return LeaseVerdict(LeaseState.LOST, end=LeaseEnd.RELEASED)
        return LeaseVerdict(LeaseState.COMPLETED)
    if holder.fence < record.fence:
        return LeaseVerdict(LeaseState.LOST, end=LeaseEnd.SUPERSEDED)
    return LeaseVerdict(LeaseState.LOST, end=LeaseEnd.TASK_ENDED if record.terminal else LeaseEnd.EXPIRED)


def conditions(record: TaskRecord, now_ms: int) -> frozenset[Condition]:
    """Every condition that holds at this instant."""
    lease = record.live_lease(now_ms)
    held = lease is not None
    place = availability(record)
    given_up = record.settlement is not None and record.settlement.fence == record.fence
    budget = record.definition.budget
    facts = {
        Condition.LEASED: held,
        Condition.LEASE_EXPIRED: not held and record.fence > 0 and not given_up and not record.terminal,
        Condition.RECOVERY_REQUIRED: not held and any(record.open_actions()),
        Condition.APPROVAL_PENDING: not record.terminal and any(record.pending_approvals(now_ms)),
        Condition.APPROVAL_DECIDED: record.state is TaskState.AWAITING_APPROVAL and _decided(record),
        Condition.BUDGET_EXHAUSTED: record.exhausted
        or record.reserved_tokens >= budget.max_tokens
        or record.reserved_cost_micros >= budget.max_cost_micros,
        Condition.NOT_BEFORE: record.not_before_ms is not None and record.not_before_ms > now_ms,
        Condition.CLAIMABLE: place is not None and place.queue is Queue.WORK and place.at_ms <= now_ms,
    }
    return frozenset(condition for condition, holds in facts.items() if holds)


def _decided(record: TaskRecord) -> bool:
    return any(
        approval.decision is not ApprovalDecision.PENDING and not approval.consumed
        for approval in record.approvals.values()
    )
