"""Who is connected: the newest stream of a holder wins, or a further one is refused."""

import grpc
import pytest

from service_common.clocks import ManualClock
from service_common.errors import ServiceError
from service_common.sessions.endings import EndReason
from service_common.sessions.registry import SessionRegistry
from tests.service_common.sessions.fakes import FakeContext, FakeSession

START_MS = 1_700_000_000_000


def session(clock: ManualClock, name: str = "session-1") -> FakeSession:
    made = FakeSession(FakeContext(), clock)
    made.session_id = name
    return made


@pytest.fixture
def registry(manual_clock: ManualClock) -> SessionRegistry[FakeSession]:
    return SessionRegistry(manual_clock, most=1)


def test_a_session_is_found_until_it_is_removed(
    registry: SessionRegistry[FakeSession], manual_clock: ManualClock
) -> None:
    one = session(manual_clock)
    registry.admit("device", "process", one)
    assert registry.of("device") == (one,)
    assert list(registry) == [one]
    assert len(registry) == 1
    assert registry.of("other") == ()
    registry.remove("device", one)
    registry.remove("device", one)
    assert registry.of("device") == ()
    assert len(registry) == 0


def test_epochs_grow_also_over_a_restart(
    registry: SessionRegistry[FakeSession], manual_clock: ManualClock
) -> None:
    sessions = [session(manual_clock, str(number)) for number in range(3)]
    for each in sessions:
        registry.admit("device", "process", each)
    assert [each.epoch for each in sessions] == [START_MS, START_MS + 1, START_MS + 2]
    manual_clock.advance(10)
    restarted: SessionRegistry[FakeSession] = SessionRegistry(manual_clock, most=1)
    later = session(manual_clock)
    restarted.admit("device", "process", later)
    assert later.epoch == START_MS + 10


def test_removing_an_older_session_leaves_the_newer_one(
    registry: SessionRegistry[FakeSession], manual_clock: ManualClock
) -> None:
    older, newer = session(manual_clock, "older"), session(manual_clock, "newer")
    registry.admit("device", "process", older)
    registry.admit("device", "process", newer)
    assert (older.ended, older.end_reason) == (True, EndReason.SUPERSEDED)
    registry.remove("device", older)
    assert registry.of("device") == (newer,)
    assert not newer.ended


def replaced(registry: SessionRegistry[FakeSession], clock: ManualClock, *processes: str) -> None:
    for number, process in enumerate(processes):
        registry.admit("device", process, session(clock, f"{clock.monotonic()}-{number}"))


def test_two_processes_may_replace_each_other_three_times_a_minute(
    registry: SessionRegistry[FakeSession], manual_clock: ManualClock
) -> None:
    replaced(registry, manual_clock, "a", "b", "a", "b")
    (present,) = registry.of("device")
    with pytest.raises(ServiceError) as caught:
        replaced(registry, manual_clock, "a")
    assert (caught.value.code, caught.value.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "DEVICE_ID_CONFLICT",
    )
    assert registry.of("device") == (present,)
    assert not present.ended
    manual_clock.advance(60_000)
    with pytest.raises(ServiceError):
        replaced(registry, manual_clock, "a")
    manual_clock.advance(1)
    replaced(registry, manual_clock, "a")


def test_one_process_may_replace_its_own_streams_for_ever(
    registry: SessionRegistry[FakeSession], manual_clock: ManualClock
) -> None:
    replaced(registry, manual_clock, *["a"] * 50)


def test_a_holder_that_was_gone_is_no_conflict(
    registry: SessionRegistry[FakeSession], manual_clock: ManualClock
) -> None:
    for number in range(10):
        one = session(manual_clock)
        registry.admit("device", f"process-{number}", one)
        registry.remove("device", one)


def test_conflicts_are_counted_by_holder(
    registry: SessionRegistry[FakeSession], manual_clock: ManualClock
) -> None:
    replaced(registry, manual_clock, "a", "b", "a", "b")
    registry.admit("other", "a", session(manual_clock))
    registry.admit("other", "b", session(manual_clock, "session-2"))
    assert len(registry) == 2


def test_a_holder_of_several_is_refused_one_more(manual_clock: ManualClock) -> None:
    registry: SessionRegistry[FakeSession] = SessionRegistry(manual_clock, most=2)
    first, second = session(manual_clock, "1"), session(manual_clock, "2")
    registry.admit("site", "a", first)
    registry.admit("site", "b", second)
    with pytest.raises(ServiceError) as caught:
        registry.admit("site", "c", session(manual_clock, "3"))
    assert (caught.value.code, caught.value.reason) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "TOO_MANY_SESSIONS",
    )
    assert caught.value.retry_after_ms == 10_000
    assert registry.of("site") == (first, second)
    registry.remove("site", first)
    registry.admit("site", "c", session(manual_clock, "3"))
    assert not second.ended
