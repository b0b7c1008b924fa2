"""How often a job is begun."""

from relay_service.client.breaker import Breaker
from service_common.clocks import ManualClock


def begin(breaker: Breaker, job_id: str = "j-1", site: str = "s") -> float | None:
    return breaker.begin(site, job_id)


def test_a_job_is_begun_three_times_thirty_seconds_apart() -> None:
    clock = ManualClock()
    breaker = Breaker(clock.monotonic)

    assert begin(breaker) == 0
    assert begin(breaker) == 30
    # The second begin is the one that waits, so the third counts from there.
    assert begin(breaker) == 60
    assert begin(breaker) is None


def test_time_that_has_passed_is_not_waited_for() -> None:
    clock = ManualClock()
    breaker = Breaker(clock.monotonic)
    assert begin(breaker) == 0
    clock.advance(29_000)
    assert begin(breaker) == 1
    clock.advance(31_000)
    assert begin(breaker) == 0
    clock.advance(599_999)
    assert begin(breaker) is None


def test_a_job_is_forgotten_ten_minutes_after_its_last_begin() -> None:
    clock = ManualClock()
    breaker = Breaker(clock.monotonic)
    for _ in range(3):
        begin(breaker)
    clock.advance(60_000 + 599_999)
    assert begin(breaker) is None
    clock.advance(1)
    assert begin(breaker) == 0
    assert len(breaker) == 1


def test_jobs_and_sites_are_counted_apart() -> None:
    breaker = Breaker(ManualClock().monotonic)

    assert [begin(breaker, "a", "s"), begin(breaker, "b", "s"), begin(breaker, "a", "t")] == [0, 0, 0]
    assert begin(breaker, "a", "s") == 30


def test_memory_is_given_up_in_order() -> None:
    clock = ManualClock()
    breaker = Breaker(clock.monotonic)
    begin(breaker, "old")
    clock.advance(300_000)
    begin(breaker, "young")
    begin(breaker, "old")
    clock.advance(600_000)

    assert begin(breaker, "young") == 0
    # "old" was last begun at 300 s as well, after "young".
    assert len(breaker) == 1
