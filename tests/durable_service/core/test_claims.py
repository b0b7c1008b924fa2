"""Claims, leases and what time makes of them."""

from collections.abc import Callable
from typing import Any

import pytest

from durable_service.core import admission
from durable_service.core.availability import Availability, Queue, availability
from durable_service.core.claims import (
    Claimed,
    ClaimRequest,
    Exhausted,
    NotClaimable,
    Unclaimable,
    claim,
    claim_for_recovery,
)
from durable_service.core.definition import Budget
from durable_service.core.errors import Reason
from durable_service.core.lapses import due_at_ms, lapse
from durable_service.core.leases import renew, yield_task
from durable_service.core.model import Attempt, ClaimReason, Holder, Lease
from durable_service.core.reconciliation import Finding
from durable_service.core.states import ActionState, TaskState

from .tasks import LEASE_MS, START_MS, Story, definition, reason, refused


def test_a_claim_grants_a_fence_an_attempt_and_a_lease() -> None:
    story = Story.begin()
    assert story.claim() == Claimed(
        Lease("worker-1", 1, 1_100, "claim-1", ClaimReason.FRESH), ClaimReason.FRESH
    )
    assert story.record.attempts == (Attempt("claim-1", "worker-1", 1, 1_000),)
    assert (story.record.state, story.record.revision, story.record.fence) == (TaskState.RUNNING, 1, 1)
    assert [(event.type, event.attempt_id, event.data) for event in story.events[1:]] == [
        ("task.state", "claim-1", '{"before":"queued","state":"running"}'),
        ("lease.granted", "claim-1", '{"fence":1,"reason":"fresh","workerId":"worker-1"}'),
    ]


def test_the_same_claim_id_gets_the_same_grant() -> None:
    story = Story.begin()
    first = story.claim()
    again = claim(story.record, ClaimRequest("worker-1", "claim-1", LEASE_MS), START_MS + 50)
    assert (again.answer, again.written) == (first, False)


def test_a_claim_id_is_not_granted_twice() -> None:
    story = Story.begin()
    story.claim()
    request = ClaimRequest("worker-1", "claim-1", LEASE_MS)
    assert reason(lambda: claim(story.record, request, START_MS + 100)) is Reason.LEASE_LOST
    story.release()
    assert reason(lambda: claim(story.record, request, START_MS)) is Reason.LEASE_LOST


def test_a_claim_id_for_recovery_is_not_granted_twice_either() -> None:
    story = Story.begin()
    story.claim()
    story.prepare()
    story.dispatch()
    story.pass_ms(100)
    story.claim("operator", recovery=True)
    request = ClaimRequest("operator", "claim-2", LEASE_MS)
    again = claim_for_recovery(story.record, request, story.now_ms)
    assert (isinstance(again.answer, Claimed), again.written) == (True, False)
    story.release()
    late = story.now_ms + 1
    assert reason(lambda: claim_for_recovery(story.record, request, late)) is Reason.LEASE_LOST


def test_a_live_lease_blocks_even_its_own_worker() -> None:
    story = Story.begin()
    story.claim()
    story.pass_ms(99)
    assert story.claim() == NotClaimable(Unclaimable.LEASED, 1_100)
    story.pass_ms(1)
    assert isinstance(story.claim("worker-2"), Claimed)


def test_the_loser_of_a_lease_is_refused_everywhere() -> None:
    story = Story.begin()
    story.claim()
    loser = story.holder
    story.pass_ms(LEASE_MS)
    answer = story.claim("worker-2")
    assert isinstance(answer, Claimed)
    assert (answer.reason, answer.lease.fence) == (ClaimReason.RECLAIMED, 2)
    story.holder = loser
    refusal = refused(story.complete)
    assert (refusal.reason, refusal.details) == (Reason.LEASE_LOST, {"fence": "1", "current_fence": "2"})
    assert reason(story.release) is Reason.LEASE_LOST
    assert reason(story.fail) is Reason.LEASE_LOST
    assert reason(story.prepare) is Reason.LEASE_LOST
    assert reason(lambda: renew(story.record, loser, 100, story.now_ms)) is Reason.LEASE_LOST


def test_renewal_counts_from_now_and_leaves_the_revision() -> None:
    story = Story.begin()
    story.claim()
    lease = story.apply(renew(story.record, story.holder, 250, START_MS + 60))
    assert lease.expires_at_ms == 1_310
    assert (story.record.revision, story.record.updated_at_ms) == (1, 1_000)


@pytest.mark.parametrize("lease_ms", [9, 3_600_001, -1])
def test_how_long_a_lease_may_be(lease_ms: int) -> None:
    story = Story.begin()
    request = ClaimRequest("worker-1", "claim", lease_ms)
    assert reason(lambda: claim(story.record, request, START_MS)) is Reason.INVALID_INTEGER
    story.claim()
    holder = story.holder
    assert reason(lambda: renew(story.record, holder, lease_ms, START_MS)) is Reason.INVALID_INTEGER


def test_a_released_task_is_resumed() -> None:
    story = Story.begin()
    story.claim()
    story.release()
    assert (story.record.state, story.record.lease, story.record.fence) == (TaskState.RUNNING, None, 1)
    answer = story.claim()
    assert isinstance(answer, Claimed)
    assert (answer.reason, answer.lease.fence) == (ClaimReason.RESUMED, 2)


def test_release_is_repeatable() -> None:
    story = Story.begin()
    story.claim()
    story.release()
    revision = story.record.revision
    story.release()
    assert story.record.revision == revision
    story.holder = Holder("worker-2", 1)
    assert reason(story.release) is Reason.LEASE_LOST


def test_attempts_run_out() -> None:
    story = Story.begin(budget=Budget(max_attempts=1))
    story.claim()
    story.pass_ms(101)
    assert story.claim() == Exhausted()
    assert (story.record.state, story.record.lease, story.record.fence) == (TaskState.STOPPED, None, 1)


def test_exhausted_but_open_is_not_stopped() -> None:
    story = Story.begin(budget=Budget(max_attempts=1))
    story.claim()
    story.prepare()
    story.dispatch()
    story.pass_ms(101)
    assert story.claim() == NotClaimable(Unclaimable.RECOVERY_ONLY, ids=("send",))
    assert story.action().state is ActionState.UNKNOWN
    answer = story.claim("operator", recovery=True)
    assert isinstance(answer, Claimed)
    assert answer.reason is ClaimReason.RECOVERY
    assert (story.record.state, len(story.record.attempts), story.record.fence) == (TaskState.RUNNING, 1, 2)


def test_recovery_costs_no_attempts_and_earns_one() -> None:
    story = Story.begin(budget=Budget(max_attempts=1))
    story.claim()
    story.prepare()
    story.dispatch()
    for _ in range(3):
        story.pass_ms(101)
        assert isinstance(story.claim("operator", recovery=True), Claimed)
    story.reconcile(Finding.CONFIRMED)
    story.release()
    assert (len(story.record.attempts), story.record.grace_attempts) == (1, 1)
    assert isinstance(story.claim(), Claimed)
    story.complete()
    assert story.record.state is TaskState.COMPLETED


def test_grace_is_one_attempt() -> None:
    story = Story.begin(budget=Budget(max_attempts=1))
    story.claim()
    story.prepare()
    story.dispatch()
    story.pass_ms(101)
    story.claim("operator", recovery=True)
    story.reconcile(Finding.CONFIRMED)
    story.release()
    story.claim()
    story.release()
    assert story.claim() == Exhausted()


def test_yield_waits() -> None:
    story = Story.begin()
    story.claim()
    story.apply(yield_task(story.record, story.holder, START_MS + 500, "later", START_MS))
    assert story.claim() == NotClaimable(Unclaimable.NOT_BEFORE, 1_500)
    assert availability(story.record) == Availability(Queue.WORK, 1_500)
    again = yield_task(story.record, story.holder, START_MS + 500, "later", START_MS + 10)
    assert again.written is False
    story.pass_ms(500)
    answer = story.claim()
    assert isinstance(answer, Claimed)
    assert answer.reason is ClaimReason.RESUMED
    assert story.record.not_before_ms is None


def test_an_expired_lease_is_told_once() -> None:
    story = Story.begin()
    story.claim()
    story.prepare()
    story.dispatch()
    assert due_at_ms(story.record) == 1_100
    assert lapse(story.record, 1_099).written is False
    story.apply(lapse(story.record, 1_100))
    assert story.record.lease is None
    assert story.action().state is ActionState.UNKNOWN
    assert [event.type for event in story.events[-2:]] == ["lease.expired", "action.unknown"]
    assert story.events[-2].data == '{"fence":1,"workerId":"worker-1"}'
    assert lapse(story.record, 9_999).written is False
    assert due_at_ms(story.record) is None


def test_an_expired_approval_is_told_once_and_wakes_the_task() -> None:
    story = Story.begin().suspended()
    assert due_at_ms(story.record) == 5_000
    assert availability(story.record) == Availability(Queue.WORK, 5_000)
    story.apply(lapse(story.record, 5_000))
    assert story.events[-1].type == "approval.expired"
    assert lapse(story.record, 5_001).written is False
    story.now_ms = 5_001
    assert isinstance(story.claim(), Claimed)


def with_deadlines(**deadlines: Any) -> Story:
    creation = admission.TaskCreation(definition(), **deadlines)
    decision = admission.create(None, creation, START_MS)
    return Story(decision.record)


def test_a_task_that_nobody_starts_in_time_is_canceled() -> None:
    story = with_deadlines(start_deadline_ms=1_500)
    assert due_at_ms(story.record) == 1_500
    story.apply(lapse(story.record, 1_500))
    assert story.record.state is TaskState.CANCELED
    assert story.record.cancel_reason == "not claimed before its start deadline"


def test_a_claim_after_the_start_deadline_finds_a_canceled_task() -> None:
    story = with_deadlines(start_deadline_ms=1_500)
    story.now_ms = 1_500
    assert story.claim() == NotClaimable(Unclaimable.TERMINAL)
    assert story.record.state is TaskState.CANCELED


def test_a_started_task_does_not_mind_the_start_deadline() -> None:
    story = with_deadlines(start_deadline_ms=1_050)
    story.claim()
    story.apply(renew(story.record, story.holder, 1_000, START_MS))
    assert due_at_ms(story.record) == 2_000


def test_the_holder_of_an_overdue_task_is_asked_to_stop() -> None:
    story = with_deadlines(finish_deadline_ms=1_050)
    story.claim()
    story.apply(lapse(story.record, 1_050))
    assert story.record.state is TaskState.CANCEL_REQUESTED
    assert story.record.lease is not None
    story.now_ms = 1_060
    assert story.acknowledge().state is TaskState.CANCELED


def test_nothing_is_begun_after_the_deadline() -> None:
    story = with_deadlines(finish_deadline_ms=1_050)
    story.claim()
    story.prepare()
    story.now_ms = 1_050
    assert reason(story.dispatch) is Reason.CANCEL_REQUESTED
    assert story.action().state is ActionState.PREPARED


def test_a_cancelled_task_whose_holder_is_gone_ends_by_itself() -> None:
    story = Story.begin()
    story.claim()
    story.prepare()
    story.cancel()
    story.apply(lapse(story.record, 1_100))
    assert story.record.state is TaskState.CANCELED
    assert story.action().state is ActionState.CANCELED


def test_a_cancelled_task_with_an_open_outcome_waits_for_evidence() -> None:
    story = Story.begin()
    story.claim()
    story.prepare()
    story.dispatch()
    story.cancel()
    story.apply(lapse(story.record, 1_100))
    assert story.record.state is TaskState.CANCEL_REQUESTED
    assert availability(story.record) == Availability(Queue.RECOVERY, 1_100)
    story.now_ms = 1_200
    story.claim("operator", recovery=True)
    story.reconcile(Finding.ABSENT)
    assert story.action().state is ActionState.CANCELED
    assert story.acknowledge().state is TaskState.CANCELED


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda s: None, Availability(Queue.WORK, 1_000)),
        (lambda s: s.claim(), Availability(Queue.WORK, 1_100)),
        (lambda s: (s.claim(), s.prepare(), s.dispatch()), Availability(Queue.RECOVERY, 1_100)),
        (lambda s: (s.claim(), s.cancel()), None),
        (lambda s: (s.claim(), s.complete()), None),
    ],
    ids=["queued", "held", "executing", "canceling", "completed"],
)
def test_where_a_task_waits(make: Callable[[Story], object], expected: Availability | None) -> None:
    story = Story.begin()
    make(story)
    assert availability(story.record) == expected


def test_a_record_cannot_be_written_to() -> None:
    story = Story.begin()
    story.claim()
    story.prepare()
    with pytest.raises(TypeError):
        story.record.actions["send"] = story.action()  # type: ignore[index]
