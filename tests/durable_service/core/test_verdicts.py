"""The word on leases, and the conditions of a task."""

from collections.abc import Callable

import pytest

from durable_service.core.definition import Budget
from durable_service.core.leases import yield_task
from durable_service.core.model import Holder
from durable_service.core.verdicts import Condition, LeaseEnd, LeaseState, LeaseVerdict, conditions, verdict

from .tasks import START_MS, Story

FIRST = Holder("worker-1", 1)


def held() -> Story:
    story = Story.begin()
    story.claim()
    return story


@pytest.mark.parametrize(
    ("tell", "now_ms", "expected"),
    [
        (lambda s: None, 1_040, LeaseVerdict(LeaseState.ACTIVE, 60)),
        (lambda s: s.cancel(), 1_040, LeaseVerdict(LeaseState.CANCEL_REQUESTED, 60)),
        (lambda s: None, 1_100, LeaseVerdict(LeaseState.LOST, end=LeaseEnd.EXPIRED)),
        (lambda s: s.release(), 1_040, LeaseVerdict(LeaseState.LOST, end=LeaseEnd.RELEASED)),
        (lambda s: s.take_back(), 1_040, LeaseVerdict(LeaseState.LOST, end=LeaseEnd.TAKEN_BACK)),
        (lambda s: (s.release(), s.claim()), 1_040, LeaseVerdict(LeaseState.LOST, end=LeaseEnd.SUPERSEDED)),
        (lambda s: s.complete(), 1_040, LeaseVerdict(LeaseState.COMPLETED)),
        (lambda s: s.fail(), 1_040, LeaseVerdict(LeaseState.COMPLETED)),
        (lambda s: (s.cancel(), s.acknowledge()), 1_040, LeaseVerdict(LeaseState.COMPLETED)),
        (
            lambda s: (s.pass_ms(100), s.cancel()),
            1_100,
            LeaseVerdict(LeaseState.LOST, end=LeaseEnd.TASK_ENDED),
        ),
    ],
)
def test_verdict(tell: Callable[[Story], object], now_ms: int, expected: LeaseVerdict) -> None:
    story = held()
    tell(story)
    assert verdict(story.record, FIRST, now_ms) == expected


def test_leases_that_never_were() -> None:
    lost = LeaseVerdict(LeaseState.LOST, end=LeaseEnd.UNKNOWN)
    assert verdict(None, FIRST, START_MS) == lost
    assert verdict(held().record, Holder("worker-1", 2), START_MS) == lost


@pytest.mark.parametrize(
    ("tell", "now_ms", "expected"),
    [
        (lambda s: None, 1_000, {Condition.CLAIMABLE}),
        (lambda s: s.claim(), 1_000, {Condition.LEASED}),
        (lambda s: s.claim(), 1_100, {Condition.LEASE_EXPIRED, Condition.CLAIMABLE}),
        (lambda s: (s.claim(), s.release()), 1_000, {Condition.CLAIMABLE}),
        (
            lambda s: (s.claim(), s.prepare(), s.dispatch()),
            1_100,
            {Condition.LEASE_EXPIRED, Condition.RECOVERY_REQUIRED},
        ),
        (lambda s: s.suspended(), 1_000, {Condition.APPROVAL_PENDING}),
        (
            lambda s: (s.suspended(), s.decide()),
            1_000,
            {Condition.APPROVAL_DECIDED, Condition.CLAIMABLE},
        ),
        (lambda s: (s.claim(), s.complete()), 1_000, set()),
        (
            lambda s: (s.claim(), s.apply(yield_task(s.record, s.holder, 1_500, "", 1_000))),
            1_000,
            {Condition.NOT_BEFORE},
        ),
    ],
)
def test_conditions(tell: Callable[[Story], object], now_ms: int, expected: set[Condition]) -> None:
    story = Story.begin()
    tell(story)
    assert conditions(story.record, now_ms) == expected


def test_a_used_up_budget() -> None:
    story = Story.begin(budget=Budget(max_attempts=1))
    story.claim()
    assert Condition.BUDGET_EXHAUSTED in conditions(story.record, START_MS)
