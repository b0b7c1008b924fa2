import pytest

from relay_service.core.lanes import LaneKey, admits, lane_key, opening, openings
from relay_service.core.model import Audience, JobState, Route, RoutedJob, WorkAvailable

from .jobs import job

ROUTE = Route("site", "alice")
KINDS = frozenset({"llm.generate"})


def lane(
    audience: Audience = Audience.TEAM, reoffer_to: str | None = None, blocked: tuple[str, ...] = ()
) -> LaneKey:
    return LaneKey("llm.generate", audience, reoffer_to, frozenset(blocked))


def word(runner: str | None = None) -> WorkAvailable:
    return WorkAvailable(ROUTE, "llm.generate", Audience.TEAM, runner)


def test_a_lane_is_what_decides_who_may_take_a_job() -> None:
    assert lane_key(job()) == lane()
    found = job(reoffer_to="r1", refused_by=("r2",), retry_after_ms=(("r3", 5),))
    assert lane_key(found) == lane(reoffer_to="r1", blocked=("r2", "r3"))
    assert lane_key(job(refused_by=("a", "b"))) == lane_key(
        job(refused_by=("b",), retry_after_ms=(("a", 5),))
    )


@pytest.mark.parametrize(
    ("key", "own", "kinds", "admitted"),
    [
        (lane(), False, KINDS, True),
        (lane(), False, frozenset({"llm.chat"}), False),
        (lane(Audience.PRIVATE), False, KINDS, False),
        (lane(Audience.PRIVATE), True, KINDS, True),
        (lane(reoffer_to="r1"), False, KINDS, True),
        (lane(reoffer_to="r2"), False, KINDS, False),
        (lane(blocked=("r1",)), True, KINDS, False),
        (lane(blocked=("r2",)), False, KINDS, True),
        (lane(reoffer_to="r1", blocked=("r1",)), True, KINDS, False),
    ],
)
def test_who_is_admitted(key: LaneKey, own: bool, kinds: frozenset[str], admitted: bool) -> None:
    assert admits(key, "r1", kinds, own) is admitted


def test_an_opening_names_the_one_it_is_for() -> None:
    assert opening(ROUTE, lane()) == word()
    assert opening(ROUTE, lane(reoffer_to="r1", blocked=("r2",))) == word("r1")
    assert opening(ROUTE, lane(reoffer_to="r1", blocked=("r1",))) is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (None, job(), (word(),)),
        (job(JobState.RUNNING), job(), (word(),)),
        (job(JobState.AWAITING_PAYLOAD), job(reoffer_to="r1"), (word("r1"),)),
        (job(JobState.AWAITING_PAYLOAD), job(reoffer_to="r1", refused_by=("r1",)), ()),
        (job(), None, ()),
        (job(), job(JobState.AWAITING_PAYLOAD), ()),
        (job(), job(), ()),
        (
            job(retry_after_ms=(("r2", 5), ("r1", 5), ("r3", 9))),
            job(retry_after_ms=(("r3", 9),)),
            (word("r1"), word("r2")),
        ),
        (job(reoffer_to="r1", retry_after_ms=(("r2", 5),)), job(reoffer_to="r1"), ()),
        (job(reoffer_to="r1", retry_after_ms=(("r1", 5),)), job(reoffer_to="r1"), (word("r1"),)),
        (job(refused_by=("r1",), retry_after_ms=(("r1", 5),)), job(refused_by=("r1",)), ()),
    ],
)
def test_what_a_step_makes_claimable(
    old: RoutedJob | None, new: RoutedJob | None, words: tuple[WorkAvailable, ...]
) -> None:
    assert openings(old, new) == words
