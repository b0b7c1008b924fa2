"""What a site's inbox says about one job, and which word replaces which."""

from typing import NamedTuple

from relay_service.core.model import (
    Claim,
    Disposition,
    JobEnd,
    JobKey,
    JobState,
    Notice,
    NoticeKind,
    RequeueCause,
    RoutedJob,
)


class NoticeDraft(NamedTuple):
    """A row that has no place in an inbox yet; the fields are those of `Notice`."""

    kind: NoticeKind
    claim: Claim | None = None
    seal_until_ms: int | None = None
    disposition: Disposition | None = None
    result_bytes: int = 0
    end: JobEnd | None = None
    requeue: RequeueCause | None = None


class JobRows(NamedTuple):
    """The rows of one job.

    Attributes:
        outlook: what the job waits for or how it ended.
        requeued: that it went back to the queue, and how often.
    """

    outlook: Notice | None = None
    requeued: Notice | None = None


class Place(NamedTuple):
    """Where and when a row is written."""

    notice_id: str
    sequence: int
    created_at_ms: int


def please_seal(claim: Claim, seal_until_ms: int) -> NoticeDraft:
    return NoticeDraft(NoticeKind.PLEASE_SEAL, claim, seal_until_ms)


def result_ready(claim: Claim, disposition: Disposition, result_bytes: int) -> NoticeDraft:
    return NoticeDraft(NoticeKind.RESULT_READY, claim, None, disposition, result_bytes)


def job_ended(end: JobEnd) -> NoticeDraft:
    return NoticeDraft(NoticeKind.JOB_ENDED, end=end)


def job_requeued(cause: RequeueCause) -> NoticeDraft:
    return NoticeDraft(NoticeKind.JOB_REQUEUED, requeue=cause)


def post(rows: JobRows, draft: NoticeDraft, key: JobKey, place: Place) -> JobRows:
    """Writes a row: a later outlook replaces the earlier one, an end also the requeue row.

    A requeue withdraws the request to seal, for the grant that it named is over.
    """
    if draft.kind is NoticeKind.JOB_REQUEUED:
        times = rows.requeued.count + 1 if rows.requeued else 1
        return JobRows(withdraw(rows).outlook, _written(draft, key, place, times))
    settled = draft.kind in {NoticeKind.RESULT_READY, NoticeKind.JOB_ENDED}
    return JobRows(_written(draft, key, place, 1), None if settled else rows.requeued)


def withdraw(rows: JobRows) -> JobRows:
    """Takes a request to seal back."""
    if rows.outlook is None or rows.outlook.kind is not NoticeKind.PLEASE_SEAL:
        return rows
    return JobRows(None, rows.requeued)


def wants_seal(job: RoutedJob | None) -> bool:
    """Whether the site is asked to seal this job."""
    return job is not None and job.state is JobState.AWAITING_PAYLOAD and not job.cancelled


def settles_by_notice_id(notice: Notice) -> bool:
    """Whether a row is settled by naming it; the others are settled by sealing or collecting."""
    return notice.kind in {NoticeKind.JOB_ENDED, NoticeKind.JOB_REQUEUED}


def _written(draft: NoticeDraft, key: JobKey, place: Place, count: int) -> Notice:
    return Notice(
        place.notice_id,
        place.sequence,
        key,
        draft.kind,
        place.created_at_ms,
        draft.claim,
        draft.seal_until_ms,
        draft.disposition,
        draft.result_bytes,
        draft.end,
        draft.requeue,
        count,
    )
