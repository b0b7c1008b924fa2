"""The state machine of a job: what each command makes of it, or why it does not happen.

Every function is a decision about one job at one instant. Time has passed already (`lapses`):
a command never sees a job whose window, lease or deadline is over. A transition whose job is
the very job it was asked about changes nothing.
"""

from dataclasses import replace

from relay_service.core import inbox
from relay_service.core.limits import (
    AUTHORISATION_MS,
    AWAITING_PAYLOAD_MS,
    RESULT_RETENTION_MS,
    SEAL_ATTEMPTS_BEFORE_EVICTION,
)
from relay_service.core.model import (
    Claim,
    Disposition,
    JobEnd,
    JobKey,
    JobState,
    JobStub,
    LeaseEnd,
    Refusal,
    ReleaseReason,
    RequeueCause,
    RoutedJob,
    SealedEnvelope,
)
from relay_service.core.moves import (
    HELD,
    SEALING,
    TAKING,
    Transition,
    ended,
    held_by,
    holder,
    lease_word,
    requeued,
    taken_back,
    wasted,
)
from relay_service.core.revision import revise


def enqueue(key: JobKey, stub: JobStub, sequence: int) -> Transition:
    return Transition(RoutedJob(key, stub, sequence))


def grant(job: RoutedJob, claim: Claim, now_ms: int) -> Transition:
    """A device takes a queued job; the site has 10,000 ms to seal to it."""
    until = now_ms + AWAITING_PAYLOAD_MS
    granted = revise(
        job,
        state=JobState.AWAITING_PAYLOAD,
        claim=claim,
        awaiting_until_ms=until,
        sticky_until_ms=None,
    )
    return Transition(granted, inbox.please_seal(claim, until))


def hold_back(job: RoutedJob, claim: Claim, now_ms: int) -> Transition:
    """A device wins a queued job, and nobody hears of it until the policy has agreed.

    Its lease is the time that the policy may take.
    """
    held_back = replace(claim, lease_expires_at_ms=now_ms + AUTHORISATION_MS)
    return Transition(revise(job, state=JobState.AUTHORISING, claim=held_back, sticky_until_ms=None))


def authorise(
    job: RoutedJob | None, runner_id: str, lease_id: str, signed_grant: bytes, lease_ms: int, now_ms: int
) -> Transition | None:
    """The policy agrees: window and lease begin now. A repeat changes nothing.

    Returns:
        None when the grant is over.
    """
    claim = None if job is None else job.claim
    if job is None or claim is None or (claim.runner_id, claim.lease_id) != (runner_id, lease_id):
        return None
    if job.state is not JobState.AUTHORISING:
        # Asked twice, for a claim that was repeated: the first answer counts.
        return Transition(job) if job.state in HELD and not job.cancelled else None
    return grant(
        job, replace(claim, lease_expires_at_ms=now_ms + lease_ms, signed_grant=signed_grant), now_ms
    )


def decline(
    job: RoutedJob | None,
    runner_id: str,
    lease_id: str,
    now_ms: int,
    *,
    refused: bool,
    retry_after_ms: int | None = None,
) -> Transition | None:
    """The policy does not agree: back to the queue without a word; None when the grant is over.

    Args:
        refused: this runner is never offered the job again.
        retry_after_ms: how long this runner is not asked again.
    """
    claim = None if job is None else job.claim
    if job is None or claim is None or job.state is not JobState.AUTHORISING:
        return None
    if (claim.runner_id, claim.lease_id) != (runner_id, lease_id):
        return None
    marked = _with_retry_after(job, runner_id, now_ms, retry_after_ms)
    step = _refused(marked, runner_id, now_ms) if refused else taken_back(marked, now_ms)
    # An eviction is told: the site has to hear that its job is gone.
    return step if step.job is None else step._replace(notice=None)


def seal(
    job: RoutedJob, lease_id: str, recipient_key_id: str, envelope: SealedEnvelope
) -> Transition | Refusal:
    """The site hands the payload over for the very grant it was sealed to.

    The lease is compared first: a payload for another grant's device is stale, whoever it
    is sealed to.
    """
    if job.cancelled and job.state in HELD:
        return Refusal.CANCELLED
    if refusal := SEALING[job.state]:
        return refusal
    claim = holder(job)
    if claim.lease_id != lease_id:
        return Refusal.STALE_LEASE
    if claim.device.key_id != recipient_key_id:
        return Refusal.WRONG_RECIPIENT
    sealed = revise(
        job,
        state=JobState.READY,
        payload=envelope,
        awaiting_until_ms=None,
        seal_attempts=0,
        attempts_before_seal=job.seal_attempts,
    )
    return Transition(sealed, word=lease_word(sealed, payload_ready=True))


def take_payload(job: RoutedJob | None, runner_id: str, lease_id: str) -> Transition | Refusal:
    """The holder is handed the payload, which ends stickiness. A repeat changes nothing."""
    held = held_by(job, runner_id, lease_id)
    if isinstance(held, Refusal):
        return held
    if held.cancelled and held.state in HELD:
        return Refusal.CANCELLED
    if refusal := TAKING[held.state]:
        return refusal
    if held.state is JobState.RUNNING:
        return Transition(held)
    return Transition(revise(held, state=JobState.RUNNING, reoffer_to=None, sticky_until_ms=None))


def complete(
    job: RoutedJob | None,
    runner_id: str,
    lease_id: str,
    envelope: SealedEnvelope,
    disposition: Disposition,
    now_ms: int,
) -> Transition | Refusal:
    """The holder reports. The first result wins; the finisher's repeat changes nothing.

    A result is taken from any held state, cancelled or not. The payload has served and is
    dropped; the result is kept for 24 hours unless it is collected.
    """
    held = held_by(job, runner_id, lease_id)
    if isinstance(held, Refusal):
        return held
    if held.state is JobState.DONE:
        return Transition(held)
    done = revise(
        held,
        state=JobState.DONE,
        payload=None,
        result=envelope,
        disposition=disposition,
        awaiting_until_ms=None,
        retained_until_ms=now_ms + RESULT_RETENTION_MS,
    )
    return Transition(done, inbox.result_ready(holder(held), disposition, len(envelope.ciphertext)))


def release(
    job: RoutedJob | None,
    runner_id: str,
    lease_id: str,
    reason: ReleaseReason,
    now_ms: int,
    retry_after_ms: int | None = None,
) -> Transition | None:
    """The holder gives the job back; None when there is nothing of it to give.

    A finished job is never un-finished: a shutdown and a result may race. A payload that the
    device could not open is an unsealed lapse, and so is a refusal by the runner that the job
    is reserved for. Marks are written with the requeue, so that the job is at no instant
    claimable against them.

    Args:
        retry_after_ms: how long this runner is not asked again; at most 0 is no wait.
    """
    held = held_by(job, runner_id, lease_id)
    if isinstance(held, Refusal) or held.state not in HELD:
        return None
    if held.cancelled:
        return ended(JobEnd.CANCELLED, LeaseEnd.RELEASED)
    marked = _with_retry_after(held, runner_id, now_ms, retry_after_ms)
    if reason is ReleaseReason.BAD_ENVELOPE and held.state is not JobState.AWAITING_PAYLOAD:
        return wasted(
            marked, RequeueCause.BAD_ENVELOPE, held.attempts_before_seal + 1, LeaseEnd.RELEASED, now_ms
        )
    if reason is ReleaseReason.REFUSED:
        return _refused(marked, runner_id, now_ms)
    return requeued(marked, RequeueCause.RELEASED, LeaseEnd.RELEASED, now_ms)


def collect(job: RoutedJob) -> Transition | None:
    """The site has the result, which is forgotten; None while there is none."""
    return Transition(None) if job.state is JobState.DONE else None


def cancel(job: RoutedJob) -> Transition:
    """The site withdraws the job: gone at once when nobody holds it, else its holder is told."""
    if job.state is JobState.QUEUED:
        return ended(JobEnd.CANCELLED)
    if job.state is JobState.AUTHORISING:
        return ended(JobEnd.CANCELLED, LeaseEnd.CANCELLED)
    if job.state is JobState.DONE or job.cancelled:
        return Transition(job)
    cancelled = revise(job, cancelled=True)
    return Transition(cancelled, word=lease_word(cancelled, cancel_requested=True))


def acknowledge_cancel(job: RoutedJob | None, runner_id: str, lease_id: str) -> Transition | None:
    """The holder knows of the cancel; None when there is nothing to know."""
    held = held_by(job, runner_id, lease_id)
    if isinstance(held, Refusal) or held.state not in HELD:
        return None
    if not held.cancelled or held.cancel_acknowledged:
        return None
    return Transition(revise(held, cancel_acknowledged=True))


def renew(job: RoutedJob, lease_ms: int, now_ms: int) -> Transition:
    """The lease of a held job lasts that much longer, counted from now.

    The site's window is left alone: a busy device says nothing about the site.
    """
    claim = holder(job)
    renewed = Claim(
        claim.runner_id, claim.owner, claim.device, claim.lease_id, now_ms + lease_ms, claim.signed_grant
    )
    return Transition(revise(job, claim=renewed))


def _refused(job: RoutedJob, runner_id: str, now_ms: int) -> Transition:
    marked = revise(job, refused_by=(*job.refused_by, runner_id))
    if job.reoffer_to != runner_id:
        return requeued(marked, RequeueCause.REFUSED, LeaseEnd.RELEASED, now_ms)
    # Nobody else is offered the job, so its refusal has to bring the end nearer.
    attempts = job.seal_attempts + 1
    if attempts >= SEAL_ATTEMPTS_BEFORE_EVICTION:
        return ended(JobEnd.EVICTED_UNSEALED, LeaseEnd.RELEASED)
    counted = revise(marked, seal_attempts=attempts)
    return requeued(counted, RequeueCause.REFUSED, LeaseEnd.RELEASED, now_ms)


def _with_retry_after(job: RoutedJob, runner_id: str, now_ms: int, retry_after_ms: int | None) -> RoutedJob:
    if retry_after_ms is None:
        return job
    others = tuple(entry for entry in job.retry_after_ms if entry[0] != runner_id)
    if retry_after_ms <= 0:
        return revise(job, retry_after_ms=others)
    return revise(job, retry_after_ms=(*others, (runner_id, now_ms + retry_after_ms)))
