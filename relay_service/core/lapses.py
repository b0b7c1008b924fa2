"""What time alone makes of a job. Every bound is inclusive: at the instant itself it is over."""

from relay_service.core.limits import AWAITING_PAYLOAD_MS, SEAL_ATTEMPTS_BEFORE_EVICTION
from relay_service.core.model import (
    JobEnd,
    JobState,
    LeaseEnd,
    RequeueCause,
    RoutedJob,
)
from relay_service.core.moves import (
    HELD,
    Transition,
    ended,
    holder,
    lease_word,
    pending_retries,
    requeued,
    taken_back,
    wasted,
)
from relay_service.core.revision import revise


def due_at_ms(job: RoutedJob) -> int:
    """The first instant at which time changes this job.

    The lease of a grant that is held back is the time that the policy may take. Once it is
    authorised, a lease does not bound the wait for the site, which has its own window, and a
    finished job is no longer bound by the deadline of the work.
    """
    deadline = job.stub.deadline_at_ms
    if job.state is JobState.DONE:
        return deadline if job.retained_until_ms is None else job.retained_until_ms
    if job.state is JobState.QUEUED:
        sticky = deadline if job.sticky_until_ms is None else job.sticky_until_ms
        return min(deadline, sticky, *(until for _, until in job.retry_after_ms))
    if job.awaiting_until_ms is not None:
        return min(deadline, job.awaiting_until_ms)
    return min(deadline, holder(job).lease_expires_at_ms)


def pass_time(job: RoutedJob, now_ms: int) -> Transition | None:
    """The step that is due at this instant, None when there is none.

    The deadline of the work counts before the clocks of its holder. One step may leave
    another one due.
    """
    if due_at_ms(job) > now_ms:
        return None
    if job.state is JobState.DONE:
        return ended(JobEnd.RESULT_DROPPED)
    if job.stub.deadline_at_ms <= now_ms:
        return _expired(job)
    if job.state is JobState.QUEUED:
        return _waited(job, now_ms)
    return _lapsed(job, now_ms)


def _expired(job: RoutedJob) -> Transition:
    if job.state not in HELD:
        # The holder of a grant that is held back knows nothing of it.
        return ended(JobEnd.EXPIRED, None if job.claim is None else LeaseEnd.DEADLINE_PASSED)
    if job.cancelled:
        return _told(job, ended(JobEnd.CANCELLED, LeaseEnd.CANCELLED))
    return _told(job, ended(JobEnd.EXPIRED, LeaseEnd.DEADLINE_PASSED))


def _lapsed(job: RoutedJob, now_ms: int) -> Transition:
    if job.state is JobState.AUTHORISING:
        # The relay that asked has died, or the policy took too long: neither is the site's fault.
        return taken_back(job, now_ms)
    if job.cancelled:
        return _told(job, ended(JobEnd.CANCELLED, LeaseEnd.CANCELLED))
    if job.state is JobState.AWAITING_PAYLOAD:
        attempts = job.seal_attempts + 1
        return _told(job, wasted(job, RequeueCause.WINDOW_LAPSED, attempts, LeaseEnd.WINDOW_LAPSED, now_ms))
    return _told(job, requeued(job, RequeueCause.LEASE_LAPSED, LeaseEnd.EXPIRED, now_ms))


def _waited(job: RoutedJob, now_ms: int) -> Transition:
    """A queued job: the runner it is reserved for did not come, or may be asked again."""
    asked = revise(job, retry_after_ms=pending_retries(job, now_ms))
    if job.sticky_until_ms is None or job.sticky_until_ms > now_ms:
        return Transition(asked)
    attempts = job.seal_attempts + 1
    if attempts >= SEAL_ATTEMPTS_BEFORE_EVICTION:
        return ended(JobEnd.EVICTED_UNSEALED)
    return Transition(revise(asked, seal_attempts=attempts, sticky_until_ms=now_ms + AWAITING_PAYLOAD_MS))


def _told(job: RoutedJob, step: Transition) -> Transition:
    """The step, with the word to the holder who did not bring it about."""
    return step._replace(word=lease_word(job, end=step.lease_end))
