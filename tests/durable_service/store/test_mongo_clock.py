"""The clock of a store on MongoDB never goes back, whatever the server's does."""

import pytest

pytest.importorskip("pymongo")

from durable_service.store.mongo_clock import Instant, ServerClock


class Steady:
    def __init__(self) -> None:
        self.now_ms = 50

    def __call__(self) -> int:
        return self.now_ms


def test_the_servers_time_is_taken_as_it_is() -> None:
    clock = ServerClock(steady=Steady())
    assert clock.read(1_000) == Instant(1_000, behind=False)
    assert clock.read(1_000) == Instant(1_000, behind=False)
    assert clock.read(9_000) == Instant(9_000, behind=False)
    assert clock.latest_ms == 9_000


def test_time_goes_on_when_the_server_is_set_back() -> None:
    steady = Steady()
    clock = ServerClock(steady=steady)
    clock.read(9_000)
    steady.now_ms += 100
    assert clock.read(4_000) == Instant(9_100, behind=True)
    steady.now_ms += 50
    assert clock.read(4_050) == Instant(9_150, behind=True)
    assert clock.read(9_200) == Instant(9_200, behind=False)


def test_what_was_written_down_is_the_floor() -> None:
    steady = Steady()
    clock = ServerClock(7_000, steady)
    steady.now_ms += 3
    assert clock.read(5_000) == Instant(7_003, behind=True)
