import asyncio

import pytest
from structlog.testing import capture_logs

from service_common.clocks import ManualClock
from service_common.health import ServingState
from service_common.readiness import Readiness


class Store:
    """Answers its probe as told, and counts."""

    def __init__(self) -> None:
        self.answer: bool | Exception = True
        self.hangs = False
        self.asked = 0

    async def probe(self) -> bool:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Bench:
    """Two services on one store, a third on another."""

    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.state = ServingState(["a", "b", "c"])
        self.shared, self.own = Store(), Store()
        shared = self.shared.probe
        self.readiness = Readiness(self.clock, self.state, {"a": shared, "b": shared, "c": self.own.probe})


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_each_service_follows_its_own_store(bench: Bench) -> None:
    bench.own.answer = False
    await bench.readiness.refresh()
    assert [bench.state.is_serving(name) for name in ("a", "b", "c", "")] == [True, True, False, False]


async def test_services_that_share_a_store_ask_it_once(bench: Bench) -> None:
    await bench.readiness.refresh()
    assert bench.shared.asked == 1


async def test_a_probe_that_fails_is_a_no_and_its_text_is_not_logged(bench: Bench) -> None:
    await bench.readiness.refresh()
    bench.shared.answer = ConnectionError("redis://user:hunter2@store refused")
    with capture_logs() as logs:
        await bench.readiness.refresh()
    assert bench.state.is_serving("a") is False
    assert bench.state.is_serving("c") is True
    assert logs[0] == {
        "event": "readiness probe failed",
        "log_level": "warning",
        "error_type": "ConnectionError",
    }
    assert "hunter2" not in repr(logs)


async def test_a_probe_that_does_not_answer_in_time_is_a_no(bench: Bench) -> None:
    await bench.readiness.refresh()
    bench.shared.hangs = True
    refreshing = asyncio.create_task(bench.readiness.refresh())
    await bench.clock.advance_async(1_999)
    assert bench.state.is_serving("a") is True
    await bench.clock.advance_async(1)
    await refreshing
    assert bench.state.is_serving("a") is False


async def test_an_answer_counts_for_its_time_to_live(bench: Bench) -> None:
    running = asyncio.create_task(bench.readiness.run())
    await bench.clock.advance_async(0)
    assert bench.shared.asked == 1
    bench.shared.answer = False
    await bench.clock.advance_async(4_999)
    assert bench.shared.asked == 1
    assert bench.state.is_serving("a") is True
    await bench.clock.advance_async(1)
    assert bench.shared.asked == 2
    assert bench.state.is_serving("a") is False
    running.cancel()
    await asyncio.wait((running,))
