import pytest

from relay_service.core import transitions
from relay_service.core.inbox import NoticeDraft
from relay_service.core.model import (
    Claim,
    Disposition,
    JobEnd,
    JobKey,
    JobState,
    LeaseChanged,
    LeaseEnd,
    LeaseRef,
    NoticeKind,
    Refusal,
    ReleaseReason,
    RequeueCause,
    RoutedJob,
)
from relay_service.core.moves import Transition, holder, may_become, payload_of

from .jobs import CLAIM, DEVICE, HELD_BACK, NOW_MS, PAYLOAD, RESULT, STUB, job

AUTHORISING = JobState.AUTHORISING
AWAITING = JobState.AWAITING_PAYLOAD
READY = JobState.READY
RUNNING = JobState.RUNNING
DONE = JobState.DONE


def after(step: Transition | Refusal | None) -> RoutedJob:
    assert isinstance(step, Transition)
    assert step.job is not None
    return step.job


def test_enqueue_begins_in_the_queue() -> None:
    step = transitions.enqueue(JobKey("site", "job"), STUB, 7)
    assert step == Transition(RoutedJob(JobKey("site", "job"), STUB, 7))
    assert step.job is not None
    assert step.job.state is JobState.QUEUED


def test_grant_opens_the_window_and_asks_the_site() -> None:
    sticky = job(reoffer_to="runner", sticky_until_ms=1_005_000, seal_attempts=1)
    step = transitions.grant(sticky, CLAIM, NOW_MS)
    granted = after(step)
    assert (granted.state, granted.claim, granted.awaiting_until_ms) == (AWAITING, CLAIM, 1_010_000)
    assert (granted.reoffer_to, granted.sticky_until_ms, granted.seal_attempts) == ("runner", None, 1)
    assert step.notice == NoticeDraft(NoticeKind.PLEASE_SEAL, CLAIM, 1_010_000)


def test_seal_starts_the_count_again_and_tells_the_holder() -> None:
    step = transitions.seal(job(AWAITING, seal_attempts=2), "lease", DEVICE.key_id, PAYLOAD)
    sealed = after(step)
    assert (sealed.state, sealed.payload, sealed.awaiting_until_ms) == (READY, PAYLOAD, None)
    assert (sealed.seal_attempts, sealed.attempts_before_seal) == (0, 2)
    assert isinstance(step, Transition)
    assert step.word == LeaseChanged("runner", LeaseRef("job", "lease"), "site", payload_ready=True)
    assert step.notice is None


@pytest.mark.parametrize(
    ("lease", "recipient", "refusal"),
    [
        ("other", DEVICE.key_id, Refusal.STALE_LEASE),
        ("other", "BYOLLM-X", Refusal.STALE_LEASE),
        ("lease", "BYOLLM-X", Refusal.WRONG_RECIPIENT),
    ],
)
def test_seal_is_for_one_grant_and_one_device(lease: str, recipient: str, refusal: Refusal) -> None:
    assert transitions.seal(job(AWAITING), lease, recipient, PAYLOAD) is refusal


def test_seal_of_a_finished_job_is_too_late_even_when_it_was_cancelled() -> None:
    finished = job(DONE, cancelled=True)
    assert transitions.seal(finished, "lease", DEVICE.key_id, PAYLOAD) is Refusal.TOO_LATE


def test_take_ends_stickiness() -> None:
    taken = after(transitions.take_payload(job(READY, reoffer_to="runner"), "runner", "lease"))
    assert (taken.state, taken.reoffer_to, taken.sticky_until_ms) == (RUNNING, None, None)


def test_take_again_changes_nothing() -> None:
    running = job(RUNNING)
    assert after(transitions.take_payload(running, "runner", "lease")) is running


@pytest.mark.parametrize("state", [AWAITING, READY, RUNNING, DONE])
def test_strangers_are_told_the_same_in_every_state(state: JobState) -> None:
    found = job(state)
    for runner, lease, refusal in (
        ("other", "lease", Refusal.NOT_HOLDER),
        ("other", "lease-2", Refusal.NOT_HOLDER),
        ("runner", "lease-2", Refusal.STALE_LEASE),
    ):
        assert transitions.take_payload(found, runner, lease) is refusal
        assert transitions.complete(found, runner, lease, RESULT, Disposition.OK, NOW_MS) is refusal
        assert transitions.release(found, runner, lease, ReleaseReason.PAUSE, NOW_MS) is None
        assert transitions.acknowledge_cancel(found, runner, lease) is None


def test_nobody_holds_what_is_unknown() -> None:
    assert transitions.take_payload(None, "runner", "lease") is Refusal.NOT_FOUND
    answer = transitions.complete(None, "runner", "lease", RESULT, Disposition.OK, NOW_MS)
    assert answer is Refusal.NOT_FOUND


@pytest.mark.parametrize("state", [AWAITING, READY, RUNNING])
def test_complete_keeps_the_result_for_a_day_and_drops_the_payload(state: JobState) -> None:
    step = transitions.complete(job(state), "runner", "lease", RESULT, Disposition.ERROR, NOW_MS)
    done = after(step)
    assert (done.state, done.result, done.disposition) == (DONE, RESULT, Disposition.ERROR)
    assert (done.payload, done.awaiting_until_ms, done.retained_until_ms) == (None, None, 87_400_000)
    assert done.claim == CLAIM
    assert isinstance(step, Transition)
    assert step.notice == NoticeDraft(
        NoticeKind.RESULT_READY, CLAIM, disposition=Disposition.ERROR, result_bytes=6
    )


def test_complete_again_changes_nothing() -> None:
    done = job(DONE)
    assert after(transitions.complete(done, "runner", "lease", PAYLOAD, Disposition.ERROR, NOW_MS)) is done


@pytest.mark.parametrize("state", [AWAITING, READY, RUNNING])
def test_release_puts_the_job_back_and_destroys_the_payload(state: JobState) -> None:
    held = job(state, seal_attempts=1, attempts_before_seal=2)
    step = transitions.release(held, "runner", "lease", ReleaseReason.SHUTDOWN, NOW_MS)
    queued = after(step)
    assert (queued.state, queued.claim, queued.payload) == (JobState.QUEUED, None, None)
    assert (queued.awaiting_until_ms, queued.seal_attempts, queued.attempts_before_seal) == (None, 1, 0)
    assert step is not None
    assert (step.lease_end, step.wasted_window, step.word) == (LeaseEnd.RELEASED, False, None)
    assert step.notice == NoticeDraft(NoticeKind.JOB_REQUEUED, requeue=RequeueCause.RELEASED)


@pytest.mark.parametrize(
    ("retry_after", "entries"),
    [
        (None, (("late", 1_000_001),)),
        (0, (("late", 1_000_001),)),
        (-5, (("late", 1_000_001),)),
        (30_000, (("late", 1_000_001), ("runner", 1_030_000))),
    ],
)
def test_release_notes_when_to_ask_again(retry_after: int | None, entries: tuple[object, ...]) -> None:
    held = job(AWAITING, retry_after_ms=(("over", 1_000_000), ("late", 1_000_001)))
    step = transitions.release(held, "runner", "lease", ReleaseReason.PAUSE, NOW_MS, retry_after)
    assert after(step).retry_after_ms == entries


def test_a_new_retry_after_replaces_the_old() -> None:
    held = job(AWAITING, retry_after_ms=(("runner", 2_000_000),))
    step = transitions.release(held, "runner", "lease", ReleaseReason.PAUSE, NOW_MS, 5_000)
    assert after(step).retry_after_ms == (("runner", 1_005_000),)


def test_a_refusal_is_remembered() -> None:
    held = job(AWAITING, refused_by=("other",))
    refused = after(transitions.release(held, "runner", "lease", ReleaseReason.REFUSED, NOW_MS))
    assert (refused.refused_by, refused.seal_attempts) == (("other", "runner"), 0)


def test_a_refusal_of_a_reservation_counts() -> None:
    held = job(AWAITING, reoffer_to="runner", seal_attempts=1)
    step = transitions.release(held, "runner", "lease", ReleaseReason.REFUSED, NOW_MS)
    refused = after(step)
    assert (refused.seal_attempts, refused.reoffer_to, refused.sticky_until_ms) == (2, "runner", 1_010_000)
    assert step is not None
    assert step.wasted_window is False


def test_the_third_refusal_of_a_reservation_evicts() -> None:
    held = job(AWAITING, reoffer_to="runner", seal_attempts=2)
    step = transitions.release(held, "runner", "lease", ReleaseReason.REFUSED, NOW_MS)
    assert step == Transition(
        None,
        NoticeDraft(NoticeKind.JOB_ENDED, end=JobEnd.EVICTED_UNSEALED),
        LeaseEnd.RELEASED,
    )


@pytest.mark.parametrize("state", [READY, RUNNING])
def test_a_bad_envelope_puts_the_count_back_and_one_more(state: JobState) -> None:
    held = job(state, attempts_before_seal=1)
    step = transitions.release(held, "runner", "lease", ReleaseReason.BAD_ENVELOPE, NOW_MS)
    queued = after(step)
    assert (queued.seal_attempts, queued.attempts_before_seal) == (2, 0)
    assert (queued.reoffer_to, queued.sticky_until_ms) == ("runner", 1_010_000)
    assert step is not None
    assert (step.wasted_window, step.lease_end) == (True, LeaseEnd.RELEASED)
    assert step.notice == NoticeDraft(NoticeKind.JOB_REQUEUED, requeue=RequeueCause.BAD_ENVELOPE)


def test_the_third_bad_envelope_evicts() -> None:
    held = job(RUNNING, attempts_before_seal=2)
    step = transitions.release(held, "runner", "lease", ReleaseReason.BAD_ENVELOPE, NOW_MS)
    assert step == Transition(
        None,
        NoticeDraft(NoticeKind.JOB_ENDED, end=JobEnd.EVICTED_UNSEALED),
        LeaseEnd.RELEASED,
        wasted_window=True,
    )


@pytest.mark.parametrize("reason", list(ReleaseReason))
@pytest.mark.parametrize("state", [AWAITING, READY, RUNNING])
def test_a_cancelled_job_ends_when_it_is_given_back(state: JobState, reason: ReleaseReason) -> None:
    step = transitions.release(job(state, cancelled=True), "runner", "lease", reason, NOW_MS, 5_000)
    assert step == Transition(
        None, NoticeDraft(NoticeKind.JOB_ENDED, end=JobEnd.CANCELLED), LeaseEnd.RELEASED
    )


def test_a_finished_job_is_not_unfinished() -> None:
    assert transitions.release(job(DONE), "runner", "lease", ReleaseReason.SHUTDOWN, NOW_MS) is None


def test_cancel_of_an_unheld_job_ends_it() -> None:
    assert transitions.cancel(job()) == Transition(
        None, NoticeDraft(NoticeKind.JOB_ENDED, end=JobEnd.CANCELLED)
    )


@pytest.mark.parametrize("state", [AWAITING, READY, RUNNING])
def test_cancel_of_a_held_job_tells_its_holder_once(state: JobState) -> None:
    step = transitions.cancel(job(state))
    assert after(step).cancelled is True
    assert after(step).state is state
    assert step.word == LeaseChanged("runner", LeaseRef("job", "lease"), "site", cancel_requested=True)
    again = transitions.cancel(after(step))
    assert after(again) is after(step)
    assert again.word is None


def test_cancel_of_a_finished_job_changes_nothing() -> None:
    done = job(DONE)
    assert transitions.cancel(done) == Transition(done)


def test_acknowledging_a_cancel_is_noted_once() -> None:
    assert transitions.acknowledge_cancel(job(RUNNING), "runner", "lease") is None
    step = transitions.acknowledge_cancel(job(RUNNING, cancelled=True), "runner", "lease")
    assert after(step).cancel_acknowledged is True
    assert transitions.acknowledge_cancel(after(step), "runner", "lease") is None
    assert transitions.acknowledge_cancel(job(DONE, cancelled=True), "runner", "lease") is None


def test_renewal_counts_from_now_and_leaves_the_window_alone() -> None:
    renewed = after(transitions.renew(job(AWAITING), 30_000, NOW_MS))
    assert renewed.claim == Claim("runner", "alice", DEVICE, "lease", 1_030_000)
    assert renewed.awaiting_until_ms == 1_010_000


def test_a_result_can_be_collected_and_nothing_else() -> None:
    assert transitions.collect(job(DONE)) == Transition(None)
    for state in (JobState.QUEUED, AWAITING, READY, RUNNING):
        assert transitions.collect(job(state)) is None


MOVES = {
    "new": "queued gone",
    "queued": "queued awaiting-payload gone",
    "awaiting-payload": "queued awaiting-payload ready done gone",
    "ready": "queued ready running done gone",
    "running": "queued running done gone",
    "done": "gone",
}


@pytest.mark.parametrize("before", list(MOVES))
@pytest.mark.parametrize("to", ["queued", "awaiting-payload", "ready", "running", "done", "gone"])
def test_the_table_of_moves(before: str, to: str) -> None:
    old = None if before == "new" else job(JobState(before))
    new = None if to == "gone" else job(JobState(to))
    assert may_become(old, new) is (to in MOVES[before].split())


def test_asking_for_what_is_not_there_is_a_fault() -> None:
    with pytest.raises(LookupError):
        holder(job())
    with pytest.raises(LookupError):
        payload_of(job(AWAITING))


def test_a_grant_that_is_held_back_lasts_as_long_as_the_policy_may_take() -> None:
    sticky = job(reoffer_to="runner", sticky_until_ms=1_005_000, seal_attempts=1)
    step = transitions.hold_back(sticky, CLAIM, NOW_MS)
    won = after(step)
    assert (won.state, won.claim, won.awaiting_until_ms) == (AUTHORISING, HELD_BACK, None)
    assert (won.reoffer_to, won.sticky_until_ms, won.seal_attempts) == ("runner", None, 1)
    assert (step.notice, step.word) == (None, None)


def test_an_authorised_grant_begins_now() -> None:
    step = transitions.authorise(job(AUTHORISING), "runner", "lease", b"signed", 45_000, NOW_MS)
    granted = after(step)
    claim = Claim("runner", "alice", DEVICE, "lease", 1_045_000, b"signed")
    assert (granted.state, granted.claim, granted.awaiting_until_ms) == (AWAITING, claim, 1_010_000)
    assert step is not None
    assert step.notice == NoticeDraft(NoticeKind.PLEASE_SEAL, claim, 1_010_000)


@pytest.mark.parametrize("state", [AWAITING, READY, RUNNING])
def test_authorised_twice_changes_nothing(state: JobState) -> None:
    known = job(state)
    assert after(transitions.authorise(known, "runner", "lease", b"other", 9, NOW_MS)) is known
    cancelled = job(state, cancelled=True)
    assert transitions.authorise(cancelled, "runner", "lease", b"other", 9, NOW_MS) is None


@pytest.mark.parametrize(
    ("known", "runner", "lease"),
    [
        (None, "runner", "lease"),
        (job(), "runner", "lease"),
        (job(AUTHORISING), "other", "lease"),
        (job(AUTHORISING), "runner", "other"),
        (job(DONE), "runner", "lease"),
    ],
)
def test_a_grant_that_is_over_is_neither_authorised_nor_declined(
    known: RoutedJob | None, runner: str, lease: str
) -> None:
    assert transitions.authorise(known, runner, lease, b"signed", 9, NOW_MS) is None
    assert transitions.decline(known, runner, lease, NOW_MS, refused=True) is None


@pytest.mark.parametrize(
    ("refused", "retry_after", "refused_by", "entries"),
    [
        (False, None, (), ()),
        (False, 30_000, (), (("runner", 1_030_000),)),
        (True, None, ("runner",), ()),
    ],
)
def test_a_declined_grant_goes_back_without_a_word(
    refused: bool, retry_after: int | None, refused_by: object, entries: object
) -> None:
    step = transitions.decline(
        job(AUTHORISING, seal_attempts=1),
        "runner",
        "lease",
        NOW_MS,
        refused=refused,
        retry_after_ms=retry_after,
    )
    back = after(step)
    assert (back.state, back.claim, back.seal_attempts, back.reoffer_to) == (JobState.QUEUED, None, 1, None)
    assert (back.refused_by, back.retry_after_ms) == (refused_by, entries)
    assert step is not None
    assert (step.notice, step.word, step.wasted_window) == (None, None, False)
    assert step.lease_end is LeaseEnd.RELEASED


def test_a_declined_reservation_counts_as_a_refusal() -> None:
    reserved = job(AUTHORISING, seal_attempts=1, reoffer_to="runner")
    assert after(transitions.decline(reserved, "runner", "lease", NOW_MS, refused=True)).seal_attempts == 2
    last = job(AUTHORISING, seal_attempts=2, reoffer_to="runner")
    step = transitions.decline(last, "runner", "lease", NOW_MS, refused=True)
    assert step is not None
    assert step.job is None
    assert step.notice == NoticeDraft(NoticeKind.JOB_ENDED, end=JobEnd.EVICTED_UNSEALED)


def test_cancel_of_a_grant_that_is_held_back_ends_the_job() -> None:
    step = transitions.cancel(job(AUTHORISING))
    assert step.job is None
    assert (step.lease_end, step.word) == (LeaseEnd.CANCELLED, None)
    assert step.notice == NoticeDraft(NoticeKind.JOB_ENDED, end=JobEnd.CANCELLED)


def test_nobody_holds_a_grant_that_is_held_back() -> None:
    known = job(AUTHORISING)
    assert transitions.take_payload(known, "runner", "lease") is Refusal.NOT_FOUND
    assert transitions.release(known, "runner", "lease", ReleaseReason.SHUTDOWN, NOW_MS) is None
    assert transitions.seal(known, "lease", DEVICE.key_id, PAYLOAD) is Refusal.STALE_LEASE


def test_a_renewal_keeps_the_signed_grant() -> None:
    signed = Claim("runner", "alice", DEVICE, "lease", 1_060_000, b"signed")
    renewed = after(transitions.renew(job(RUNNING, claim=signed), 60_000, 1_010_000))
    assert renewed.claim == Claim("runner", "alice", DEVICE, "lease", 1_070_000, b"signed")
