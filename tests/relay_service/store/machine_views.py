"""The store's answers and the naive relay's, brought into words that can be compared."""

from relay_service.core.identity import PublicIdentity
from relay_service.core.model import LeaseChanged, Notice, NoticeKind, RoutedJob

from .naive_relay import NaiveJob, NaiveRow

RUNNERS = {"r1": "alice", "r2": "alice", "r3": "bob"}
DEVICES = {
    runner: PublicIdentity(runner.encode() * 16, b"e" * 32, b"s" * 64) for runner in (*RUNNERS, "nobody")
}


def view(job: RoutedJob) -> tuple[object, ...]:
    claim = job.claim
    return (
        (job.key.site_id, job.key.job_id, job.stub.owner, job.stub.kind, job.stub.audience.value),
        job.state.value,
        claim and (claim.runner_id, claim.lease_id, claim.lease_expires_at_ms),
        claim and (claim.owner, claim.device.key_id, claim.signed_grant),
        job.awaiting_until_ms,
        (job.seal_attempts, job.attempts_before_seal, job.reoffer_to, job.sticky_until_ms),
        (job.refused_by, tuple(sorted(job.retry_after_ms))),
        (job.cancelled, job.cancel_acknowledged),
        job.payload and job.payload.ciphertext,
        job.result and job.result.ciphertext,
        job.retained_until_ms,
    )


def naive_view(job: NaiveJob) -> tuple[object, ...]:
    held = job.runner is not None
    runner = job.runner or "nobody"
    reserved = job.sticky is not None and job.state == "queued"
    return (
        (job.site, job.job_id, job.owner, job.kind, job.audience),
        job.state,
        (job.runner, job.lease, job.lease_until) if held else None,
        (RUNNERS[runner], DEVICES[runner].key_id, job.signed) if held else None,
        job.window_until if job.state == "awaiting-payload" else None,
        (job.attempts, job.attempts_before, job.sticky, job.sticky_until if reserved else None),
        (tuple(job.refused), tuple(sorted(job.retry.items()))),
        (job.cancelled, job.cancel_known),
        job.payload,
        job.result,
        job.kept_until if job.state == "done" else None,
    )


def said(notice: Notice) -> tuple[str, str, str, int]:
    words = {
        NoticeKind.PLEASE_SEAL: notice.claim and notice.claim.lease_id,
        NoticeKind.RESULT_READY: str(notice.result_bytes),
        NoticeKind.JOB_ENDED: notice.end and notice.end.value,
        NoticeKind.JOB_REQUEUED: notice.requeue and notice.requeue.value,
    }
    return notice.kind.value, notice.key.job_id, words[notice.kind] or "", notice.count


def same_row(notice: Notice, row: NaiveRow) -> bool:
    return said(notice) == (row.kind, row.job_id, row.word, row.count)


def word_of(change: LeaseChanged) -> tuple[str, ...]:
    named = (change.runner_id, change.lease.job_id, change.lease.lease_id)
    assert change.payload_ready + change.cancel_requested + (change.end is not None) == 1
    if change.payload_ready:
        return ("payload", *named)
    return ("cancel", *named) if change.end is None else ("end", *named, change.end.value)
