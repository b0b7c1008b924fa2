import pytest

from relay_service.core.inbox import NoticeDraft
from relay_service.core.lapses import due_at_ms, pass_time
from relay_service.core.model import (
    JobEnd,
    JobState,
    LeaseChanged,
    LeaseEnd,
    LeaseRef,
    NoticeKind,
    RequeueCause,
    RoutedJob,
)
from relay_service.core.moves import Transition

from .jobs import DEADLINE_MS, job

AWAITING = JobState.AWAITING_PAYLOAD
READY = JobState.READY
RUNNING = JobState.RUNNING
DONE = JobState.DONE
LEASE = LeaseRef("job", "lease")


def ended(end: JobEnd) -> NoticeDraft:
    return NoticeDraft(NoticeKind.JOB_ENDED, end=end)


def after(step: Transition | None) -> RoutedJob:
    assert step is not None
    assert step.job is not None
    return step.job


@pytest.mark.parametrize(
    ("found", "due"),
    [
        (job(), 9_000_000),
        (job(reoffer_to="runner", sticky_until_ms=1_010_000), 1_010_000),
        (job(retry_after_ms=(("a", 1_030_000), ("b", 1_020_000))), 1_020_000),
        (job(AWAITING), 1_010_000),
        (job(AWAITING, retry_after_ms=(("a", 1_000_001),)), 1_010_000),
        (job(READY), 1_060_000),
        (job(RUNNING), 1_060_000),
        (job(RUNNING, cancelled=True), 1_060_000),
        (job(DONE), 87_400_000),
    ],
)
def test_the_nearest_clock(found: RoutedJob, due: int) -> None:
    assert due_at_ms(found) == due
    assert pass_time(found, due - 1) is None
    assert pass_time(found, due) is not None


@pytest.mark.parametrize("state", [AWAITING, READY, RUNNING])
def test_the_deadline_ends_a_held_job(state: JobState) -> None:
    step = pass_time(job(state), DEADLINE_MS)
    assert step == Transition(
        None,
        ended(JobEnd.EXPIRED),
        LeaseEnd.DEADLINE_PASSED,
        word=LeaseChanged("runner", LEASE, "site", end=LeaseEnd.DEADLINE_PASSED),
    )


def test_the_deadline_ends_a_queued_job() -> None:
    assert pass_time(job(), DEADLINE_MS) == Transition(None, ended(JobEnd.EXPIRED))


@pytest.mark.parametrize(
    ("state", "now"),
    [(AWAITING, 1_010_000), (READY, 1_060_000), (RUNNING, 1_060_000), (RUNNING, DEADLINE_MS)],
)
def test_a_cancelled_job_ends_with_its_first_clock(state: JobState, now: int) -> None:
    assert pass_time(job(state, cancelled=True), now) == Transition(
        None,
        ended(JobEnd.CANCELLED),
        LeaseEnd.CANCELLED,
        word=LeaseChanged("runner", LEASE, "site", end=LeaseEnd.CANCELLED),
    )


def test_a_lapsed_window() -> None:
    step = pass_time(job(AWAITING), 1_012_000)
    queued = after(step)
    assert (queued.state, queued.claim, queued.awaiting_until_ms) == (JobState.QUEUED, None, None)
    # The wait for the holder starts when the lapse is noticed.
    assert (queued.seal_attempts, queued.reoffer_to, queued.sticky_until_ms) == (1, "runner", 1_022_000)
    assert step is not None
    assert (step.wasted_window, step.lease_end) == (True, LeaseEnd.WINDOW_LAPSED)
    assert step.notice == NoticeDraft(NoticeKind.JOB_REQUEUED, requeue=RequeueCause.WINDOW_LAPSED)
    assert step.word == LeaseChanged("runner", LEASE, "site", end=LeaseEnd.WINDOW_LAPSED)


def test_the_first_abandonment_decides_whom_it_is_reserved_for() -> None:
    assert after(pass_time(job(AWAITING, reoffer_to="first"), 1_010_000)).reoffer_to == "first"


def test_the_third_lapsed_window_evicts() -> None:
    assert pass_time(job(AWAITING, seal_attempts=2), 1_010_000) == Transition(
        None,
        ended(JobEnd.EVICTED_UNSEALED),
        LeaseEnd.WINDOW_LAPSED,
        wasted_window=True,
        word=LeaseChanged("runner", LEASE, "site", end=LeaseEnd.WINDOW_LAPSED),
    )


@pytest.mark.parametrize("state", [READY, RUNNING])
def test_a_lapsed_lease(state: JobState) -> None:
    step = pass_time(job(state, attempts_before_seal=2), 1_060_000)
    queued = after(step)
    assert (queued.state, queued.payload, queued.claim) == (JobState.QUEUED, None, None)
    assert (queued.seal_attempts, queued.attempts_before_seal, queued.reoffer_to) == (0, 0, None)
    assert step is not None
    assert (step.wasted_window, step.lease_end) == (False, LeaseEnd.EXPIRED)
    assert step.notice == NoticeDraft(NoticeKind.JOB_REQUEUED, requeue=RequeueCause.LEASE_LAPSED)


def test_a_reservation_outlives_a_payload_that_was_never_taken() -> None:
    queued = after(pass_time(job(READY, reoffer_to="runner"), 1_060_000))
    assert (queued.reoffer_to, queued.sticky_until_ms) == ("runner", 1_070_000)


def test_an_absent_runner_wastes_a_window_of_the_job() -> None:
    waiting = job(reoffer_to="runner", sticky_until_ms=1_010_000, seal_attempts=1)
    step = pass_time(waiting, 1_010_000)
    assert (after(step).seal_attempts, after(step).sticky_until_ms) == (2, 1_020_000)
    assert step is not None
    assert (step.notice, step.wasted_window) == (None, False)


def test_the_third_absence_evicts() -> None:
    waiting = job(reoffer_to="runner", sticky_until_ms=1_010_000, seal_attempts=2)
    assert pass_time(waiting, 1_010_000) == Transition(None, ended(JobEnd.EVICTED_UNSEALED))


def test_retry_after_ends() -> None:
    waiting = job(retry_after_ms=(("a", 1_010_000), ("b", 1_010_001)))
    step = pass_time(waiting, 1_010_000)
    assert after(step).retry_after_ms == (("b", 1_010_001),)
    assert step == Transition(after(step))


def test_both_waits_may_end_together() -> None:
    waiting = job(
        reoffer_to="a", sticky_until_ms=1_010_000, seal_attempts=0, retry_after_ms=(("a", 1_010_000),)
    )
    found = after(pass_time(waiting, 1_010_000))
    assert (found.seal_attempts, found.retry_after_ms) == (1, ())


def test_a_result_is_dropped_after_a_day_and_not_at_the_deadline() -> None:
    assert pass_time(job(DONE), DEADLINE_MS) is None
    assert pass_time(job(DONE), 87_400_000) == Transition(None, ended(JobEnd.RESULT_DROPPED))


def test_a_grant_that_is_held_back_lapses_without_a_word_or_a_mark() -> None:
    won = job(JobState.AUTHORISING, seal_attempts=1)
    assert due_at_ms(won) == 1_005_000
    assert pass_time(won, 1_004_999) is None
    step = pass_time(won, 1_005_000)
    back = after(step)
    assert (back.state, back.claim, back.seal_attempts, back.reoffer_to) == (JobState.QUEUED, None, 1, None)
    assert step == Transition(back, lease_end=LeaseEnd.RELEASED)


def test_the_deadline_ends_a_job_whose_grant_is_held_back() -> None:
    step = pass_time(job(JobState.AUTHORISING), DEADLINE_MS)
    assert step == Transition(None, ended(JobEnd.EXPIRED), LeaseEnd.DEADLINE_PASSED)
