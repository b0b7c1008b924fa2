import pytest

from relay_service.core import inbox
from relay_service.core.inbox import JobRows, NoticeDraft, Place
from relay_service.core.model import (
    Disposition,
    JobEnd,
    JobKey,
    JobState,
    Notice,
    NoticeKind,
    RequeueCause,
)

from .jobs import CLAIM, job

KEY = JobKey("site", "job")
PLEASE_SEAL = inbox.please_seal(CLAIM, 1_010_000)
RESULT_READY = inbox.result_ready(CLAIM, Disposition.OK, 6)
JOB_ENDED = inbox.job_ended(JobEnd.EXPIRED)
REQUEUED = inbox.job_requeued(RequeueCause.REFUSED)


def written(*drafts: NoticeDraft) -> JobRows:
    rows = JobRows()
    for sequence, draft in enumerate(drafts, 1):
        rows = inbox.post(rows, draft, KEY, Place(f"n{sequence}", sequence, 1_000_000))
    return rows


def kinds(rows: JobRows) -> tuple[str | None, str | None]:
    outlook, requeued = rows.outlook, rows.requeued
    return (
        None if outlook is None else outlook.kind.value,
        None if requeued is None else requeued.kind.value,
    )


def test_a_row_holds_what_was_drafted() -> None:
    assert written(PLEASE_SEAL).outlook == Notice(
        "n1", 1, KEY, NoticeKind.PLEASE_SEAL, 1_000_000, claim=CLAIM, seal_until_ms=1_010_000
    )
    assert written(RESULT_READY).outlook == Notice(
        "n1",
        1,
        KEY,
        NoticeKind.RESULT_READY,
        1_000_000,
        claim=CLAIM,
        disposition=Disposition.OK,
        result_bytes=6,
    )
    assert written(JOB_ENDED).outlook == Notice(
        "n1", 1, KEY, NoticeKind.JOB_ENDED, 1_000_000, end=JobEnd.EXPIRED
    )
    assert written(REQUEUED).requeued == Notice(
        "n1", 1, KEY, NoticeKind.JOB_REQUEUED, 1_000_000, requeue=RequeueCause.REFUSED
    )


@pytest.mark.parametrize(
    ("drafts", "left"),
    [
        ((PLEASE_SEAL,), ("please-seal", None)),
        ((PLEASE_SEAL, REQUEUED), (None, "job-requeued")),
        ((REQUEUED, PLEASE_SEAL), ("please-seal", "job-requeued")),
        ((REQUEUED, PLEASE_SEAL, RESULT_READY), ("result-ready", None)),
        ((REQUEUED, JOB_ENDED), ("job-ended", None)),
        ((RESULT_READY, JOB_ENDED), ("job-ended", None)),
    ],
)
def test_which_word_replaces_which(
    drafts: tuple[NoticeDraft, ...], left: tuple[str | None, str | None]
) -> None:
    assert kinds(written(*drafts)) == left


def test_requeues_are_counted() -> None:
    rows = written(REQUEUED, PLEASE_SEAL, REQUEUED, REQUEUED)
    assert rows.requeued is not None
    assert (rows.requeued.count, rows.requeued.notice_id, rows.requeued.sequence) == (3, "n4", 4)


def test_only_a_request_to_seal_can_be_withdrawn() -> None:
    assert kinds(inbox.withdraw(written(REQUEUED, PLEASE_SEAL))) == (None, "job-requeued")
    assert kinds(inbox.withdraw(written(RESULT_READY))) == ("result-ready", None)
    assert kinds(inbox.withdraw(JobRows())) == (None, None)


def test_which_rows_are_settled_by_naming_them() -> None:
    settled = {}
    for draft in (PLEASE_SEAL, RESULT_READY, JOB_ENDED, REQUEUED):
        rows = written(draft)
        row = rows.outlook or rows.requeued
        assert row is not None
        settled[row.kind.value] = inbox.settles_by_notice_id(row)
    assert settled == {
        "please-seal": False,
        "result-ready": False,
        "job-ended": True,
        "job-requeued": True,
    }


def test_whom_the_site_is_asked_to_seal_for() -> None:
    asked = [state.value for state in JobState if inbox.wants_seal(job(state))]
    assert asked == ["awaiting-payload"]
    assert inbox.wants_seal(job(JobState.AWAITING_PAYLOAD, cancelled=True)) is False
    assert inbox.wants_seal(None) is False
