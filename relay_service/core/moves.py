"""The moves of a job: which there are, and the ones that several commands share."""

from collections.abc import Mapping
from typing import NamedTuple

from relay_service.core import inbox
from relay_service.core.inbox import NoticeDraft
from relay_service.core.limits import AWAITING_PAYLOAD_MS, SEAL_ATTEMPTS_BEFORE_EVICTION
from relay_service.core.model import (
    Claim,
    GrantedJob,
    JobEnd,
    JobState,
    LeaseChanged,
    LeaseEnd,
    LeaseRef,
    Refusal,
    RequeueCause,
    RoutedJob,
    SealedEnvelope,
)
from relay_service.core.revision import revise

# States whose holder knows of its lease.
HELD = frozenset({JobState.AWAITING_PAYLOAD, JobState.READY, JobState.RUNNING})
# States that count against what a route may have unsealed.
UNSEALED = frozenset({JobState.AUTHORISING, JobState.AWAITING_PAYLOAD})

# What each state answers to a caller who names the present grant; None lets it happen.
SEALING: Mapping[JobState, Refusal | None] = {
    JobState.QUEUED: Refusal.STALE_LEASE,
    # As a queued one: its site has not heard of this grant.
    JobState.AUTHORISING: Refusal.STALE_LEASE,
    JobState.AWAITING_PAYLOAD: None,
    JobState.READY: Refusal.TOO_LATE,
    JobState.RUNNING: Refusal.TOO_LATE,
    JobState.DONE: Refusal.TOO_LATE,
}
TAKING: Mapping[JobState, Refusal | None] = {
    JobState.QUEUED: Refusal.NOT_FOUND,
    JobState.AUTHORISING: Refusal.NOT_FOUND,
    JobState.AWAITING_PAYLOAD: Refusal.NOT_READY,
    JobState.READY: None,
    JobState.RUNNING: None,
    JobState.DONE: Refusal.TERMINAL,
}

# Every move there is; a job may be forgotten from any state.
MOVES: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.AUTHORISING, JobState.AWAITING_PAYLOAD}),
    JobState.AUTHORISING: frozenset({JobState.QUEUED, JobState.AWAITING_PAYLOAD}),
    JobState.AWAITING_PAYLOAD: frozenset({JobState.QUEUED, JobState.READY, JobState.DONE}),
    JobState.READY: frozenset({JobState.QUEUED, JobState.RUNNING, JobState.DONE}),
    JobState.RUNNING: frozenset({JobState.QUEUED, JobState.DONE}),
    JobState.DONE: frozenset(),
}


class Transition(NamedTuple):
    """One decided step.

    Attributes:
        job: what the job is now; None when it is forgotten.
        notice: the row that its site gets.
        lease_end: why the holder's unfinished lease is over, when it is.
        wasted_window: the step counts against the site.
        word: what its holder must hear.
    """

    job: RoutedJob | None
    notice: NoticeDraft | None = None
    lease_end: LeaseEnd | None = None
    wasted_window: bool = False
    word: LeaseChanged | None = None


def may_become(old: RoutedJob | None, new: RoutedJob | None) -> bool:
    """Whether the table of moves allows a step.

    Only the queue is a place to begin, and a finished job changes no more.
    """
    if new is None:
        return True
    if old is None:
        return new.state is JobState.QUEUED
    if new.state is old.state:
        return old.state is not JobState.DONE
    return new.state in MOVES[old.state]


def held_by(job: RoutedJob | None, runner_id: str, lease_id: str) -> RoutedJob | Refusal:
    """The job, if this runner holds or finished it under this lease.

    In this order, so that a stranger cannot tell a finished job from a live one. A grant that
    is held back is not known to anybody yet.
    """
    if job is None or job.claim is None or job.state is JobState.AUTHORISING:
        return Refusal.NOT_FOUND
    if job.claim.runner_id != runner_id:
        return Refusal.NOT_HOLDER
    if job.claim.lease_id != lease_id:
        return Refusal.STALE_LEASE
    return job


def holder(job: RoutedJob) -> Claim:
    """The claim of a held or finished job.

    Raises:
        LookupError: the job is neither, which is a fault of the caller.
    """
    if job.claim is None:
        raise LookupError("the job has no holder")
    return job.claim


def granted_job(job: RoutedJob) -> GrantedJob:
    """A held job as its holder sees it."""
    claim = holder(job)
    return GrantedJob(
        job.key.site_id,
        job.stub,
        claim.lease_id,
        claim.lease_expires_at_ms,
        job.awaiting_until_ms or 0,
        job.state is JobState.AUTHORISING,
        claim.signed_grant,
    )


def payload_of(job: RoutedJob | None) -> SealedEnvelope:
    """The payload of a job that was sealed and is not finished.

    Raises:
        LookupError: there is none, which is a fault of the caller.
    """
    if job is None or job.payload is None:
        raise LookupError("the job has no payload")
    return job.payload


def ended(end: JobEnd, lease_end: LeaseEnd | None = None) -> Transition:
    """The job is forgotten and its site is told why."""
    return Transition(None, inbox.job_ended(end), lease_end)


def requeued(job: RoutedJob, cause: RequeueCause, lease_end: LeaseEnd, now_ms: int) -> Transition:
    """The job goes back to its place in the queue and its payload is destroyed.

    The next holder has other keys. A reservation starts its wait again.
    """
    queued = revise(
        job,
        state=JobState.QUEUED,
        claim=None,
        payload=None,
        awaiting_until_ms=None,
        attempts_before_seal=0,
        sticky_until_ms=None if job.reoffer_to is None else now_ms + AWAITING_PAYLOAD_MS,
        retry_after_ms=pending_retries(job, now_ms),
    )
    return Transition(queued, inbox.job_requeued(cause), lease_end)


def taken_back(job: RoutedJob, now_ms: int) -> Transition:
    """A grant that was held back is over; since nobody was told of it, nobody is told of that."""
    return requeued(job, RequeueCause.RELEASED, LeaseEnd.RELEASED, now_ms)._replace(notice=None)


def wasted(
    job: RoutedJob, cause: RequeueCause, attempts: int, lease_end: LeaseEnd, now_ms: int
) -> Transition:
    """A grant came to nothing through its site: counted, and evicted the third time in a row.

    From now on the job is offered to this one holder, so that a site which abandons a job
    again and again learns of one device and not of a fleet.
    """
    if attempts >= SEAL_ATTEMPTS_BEFORE_EVICTION:
        return ended(JobEnd.EVICTED_UNSEALED, lease_end)._replace(wasted_window=True)
    sticky = revise(job, seal_attempts=attempts, reoffer_to=job.reoffer_to or holder(job).runner_id)
    return requeued(sticky, cause, lease_end, now_ms)._replace(wasted_window=True)


def pending_retries(job: RoutedJob, now_ms: int) -> tuple[tuple[str, int], ...]:
    """The retry-after entries that are not over; one that ends now is."""
    return tuple(entry for entry in job.retry_after_ms if entry[1] > now_ms)


def lease_word(
    job: RoutedJob,
    *,
    payload_ready: bool = False,
    cancel_requested: bool = False,
    end: LeaseEnd | None = None,
) -> LeaseChanged:
    """What the holder of a job must hear; exactly one of the three facts is set."""
    claim = holder(job)
    lease = LeaseRef(job.key.job_id, claim.lease_id)
    return LeaseChanged(claim.runner_id, lease, job.key.site_id, payload_ready, cancel_requested, end)
