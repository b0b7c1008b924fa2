"""How a worker comes to hold a task."""

from dataclasses import dataclass
from enum import StrEnum

from durable_service.core.errors import DomainError, Reason
from durable_service.core.identifiers import checked_identifier, checked_integer, checked_repeat_id
from durable_service.core.lapses import pass_time
from durable_service.core.limits import DEFAULT_LEASE_MS, MAXIMUM_LEASE_MS, MINIMUM_LEASE_MS
from durable_service.core.model import Attempt, ClaimReason, Lease, TaskRecord
from durable_service.core.states import TaskState
from durable_service.core.step import Decision, Step, unchanged


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Who asks.

    Attributes:
        claim_id: chosen by the caller; it names the attempt, and a repeat of it gets the same grant.
    """

    worker_id: str
    claim_id: str
    lease_ms: int = DEFAULT_LEASE_MS


class Unclaimable(StrEnum):
    """Why there is nothing to claim."""

    TERMINAL = "terminal"
    LEASED = "leased"
    AWAITING_APPROVAL = "awaiting_approval"
    NOT_BEFORE = "not_before"
    RECOVERY_ONLY = "recovery_only"
    NOTHING_TO_RECOVER = "nothing_to_recover"


@dataclass(frozen=True, slots=True)
class Claimed:
    """The task is the caller's until the lease is over."""

    lease: Lease
    reason: ClaimReason


@dataclass(frozen=True, slots=True)
class NotClaimable:
    """The task is not there to be claimed.

    Attributes:
        until_ms: when that may change by itself: the end of the lease, the instant a yield waits for, or
            the earliest expiry of a pending approval.
        ids: the pending approvals, or the actions that need recovery.
    """

    why: Unclaimable
    until_ms: int | None = None
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exhausted:
    """No attempt was left, so the claim has stopped the task."""


ClaimAnswer = Claimed | NotClaimable | Exhausted


def claim_id_reused() -> DomainError:
    """The refusal of a claim id that was granted another task; each names one grant."""
    return DomainError(Reason.REQUEST_ID_REUSED, "the claim id was used for another task")


def claim(record: TaskRecord, request: ClaimRequest, now_ms: int) -> Decision[ClaimAnswer]:
    """Takes a task to run it; it costs an attempt.

    A task with an open outcome is not given out: its handler must not run before the outcome is settled.

    Raises:
        DomainError: LEASE_LOST when this claim id was granted before and that lease is over;
            INVALID_IDENTIFIER, INVALID_INTEGER.
    """
    if (early := _answered_early(record, request, now_ms)) is not None:
        return early
    step = Step(record, now_ms)
    pass_time(step)
    if (obstacle := _obstacle(step.record, now_ms)) is not None:
        return step.decision_if_changed(obstacle)
    if step.record.exhausted:
        step.move(TaskState.STOPPED)
        return step.decision(Exhausted())
    return _granted(step, request, _reason(step.record))


def claim_for_recovery(record: TaskRecord, request: ClaimRequest, now_ms: int) -> Decision[ClaimAnswer]:
    """Takes a task to settle its open outcomes. It costs no attempt and leaves the state as it is.

    Raises:
        DomainError: as `claim`.
    """
    if (early := _answered_early(record, request, now_ms)) is not None:
        return early
    step = Step(record, now_ms)
    pass_time(step)
    if step.record.terminal:
        return step.decision_if_changed(NotClaimable(Unclaimable.TERMINAL))
    if not any(step.record.open_actions()):
        return step.decision_if_changed(NotClaimable(Unclaimable.NOTHING_TO_RECOVER))
    return _granted(step, request, ClaimReason.RECOVERY)


def _answered_early(record: TaskRecord, request: ClaimRequest, now_ms: int) -> Decision[ClaimAnswer] | None:
    checked_identifier(request.worker_id, "workerId")
    checked_repeat_id(request.claim_id, "claimId")
    checked_integer(request.lease_ms, "leaseMs", MINIMUM_LEASE_MS, MAXIMUM_LEASE_MS)
    lease = record.live_lease(now_ms)
    if lease is not None and (lease.claim_id, lease.worker_id) == (request.claim_id, request.worker_id):
        return unchanged(record, Claimed(lease, lease.reason))
    if record.terminal:
        return unchanged(record, NotClaimable(Unclaimable.TERMINAL))
    if _is_spent(record, request.claim_id):
        raise DomainError(
            Reason.LEASE_LOST,
            "the lease of this claim id is over: claim with a new one",
            {"current_fence": str(record.fence)},
        )
    if lease is not None:
        return unchanged(record, NotClaimable(Unclaimable.LEASED, lease.expires_at_ms))
    return None


def _is_spent(record: TaskRecord, claim_id: str) -> bool:
    return claim_id == record.last_claim_id or any(attempt.id == claim_id for attempt in record.attempts)


def _obstacle(record: TaskRecord, now_ms: int) -> NotClaimable | None:
    if record.terminal:
        return NotClaimable(Unclaimable.TERMINAL)
    open_ids = tuple(sorted(action.id for action in record.open_actions()))
    if open_ids:
        return NotClaimable(Unclaimable.RECOVERY_ONLY, ids=open_ids)
    if record.state is TaskState.AWAITING_APPROVAL:
        pending = sorted(record.pending_approvals(now_ms), key=lambda approval: approval.id)
        if pending:
            earliest = min(approval.expires_at_ms for approval in pending)
            return NotClaimable(
                Unclaimable.AWAITING_APPROVAL, earliest, tuple(approval.id for approval in pending)
            )
    if record.not_before_ms is not None and record.not_before_ms > now_ms:
        return NotClaimable(Unclaimable.NOT_BEFORE, record.not_before_ms)
    return None


def _reason(record: TaskRecord) -> ClaimReason:
    if record.fence == 0:
        return ClaimReason.FRESH
    given_up = record.settlement is not None and record.settlement.fence == record.fence
    return ClaimReason.RESUMED if given_up else ClaimReason.RECLAIMED


def _granted(step: Step, request: ClaimRequest, reason: ClaimReason) -> Decision[ClaimAnswer]:
    fence = step.record.fence + 1
    lease = Lease(request.worker_id, fence, step.now_ms + request.lease_ms, request.claim_id, reason)
    step.change(fence=fence, lease=lease, last_claim_id=request.claim_id)
    if reason is not ClaimReason.RECOVERY:
        attempt = Attempt(request.claim_id, request.worker_id, fence, step.now_ms)
        step.change(attempts=(*step.record.attempts, attempt), not_before_ms=None)
        if step.record.state is not TaskState.RUNNING:
            step.move(TaskState.RUNNING)
    step.journal("lease.granted", {"fence": fence, "reason": reason, "workerId": request.worker_id})
    return step.decision(Claimed(lease, reason))
