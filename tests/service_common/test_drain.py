import asyncio

import grpc
import pytest
from structlog.testing import capture_logs

from service_common.clocks import ManualClock
from service_common.drain import Drain
from service_common.errors import ServiceError
from service_common.health import ServingState


class Server:
    """Stops after so many seconds of its grace, or never."""

    def __init__(self, clock: ManualClock, seconds: float | None = 0) -> None:
        self.clock = clock
        self.seconds = seconds
        self.graces: list[float | None] = []

    async def stop(self, grace: float | None) -> None:
        self.graces.append(grace)
        if self.seconds is None:
            await asyncio.Event().wait()
        else:
            await self.clock.sleep(self.seconds)


class Bench:
    """A drain of 30 s grace."""

    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.state = ServingState(["a"])
        self.state.set_ready("a", ready=True)
        self.drain = Drain(self.clock, self.state, grace_ms=30_000)
        self.server = Server(self.clock)

    def run(self) -> "asyncio.Task[None]":
        return asyncio.create_task(self.drain.run(self.server))


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_nothing_happens_before_the_end_begins(bench: Bench) -> None:
    running = bench.run()
    await bench.clock.advance_async(100_000)
    assert not running.done()
    assert not bench.drain.draining
    bench.drain.refuse_if_draining()
    assert bench.state.is_serving("a") is True
    running.cancel()
    await asyncio.wait((running,))


async def test_health_and_new_sessions_are_refused_before_anything_ends(bench: Bench) -> None:
    seen: list[tuple[bool | None, bool]] = []

    async def ending() -> None:
        seen.append((bench.state.is_serving("a"), bench.drain.draining))

    bench.drain.register(ending)
    running = bench.run()
    bench.drain.begin()
    await running
    assert seen == [(False, True)]
    with pytest.raises(ServiceError) as caught:
        bench.drain.refuse_if_draining()
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    assert caught.value.reason == "SERVER_DRAINING"
    assert caught.value.retry_after_ms == 1_000


async def test_the_server_stops_when_everything_registered_has_ended(bench: Bench) -> None:
    async def ending() -> None:
        await bench.clock.sleep(10)

    bench.drain.register(ending)
    bench.drain.register(ending)
    running = bench.run()
    bench.drain.begin()
    await bench.clock.advance_async(9_999)
    assert bench.server.graces == []
    assert not bench.state.closed
    await bench.clock.advance_async(1)
    await running
    # Calls in flight get the whole of what is left.
    assert bench.server.graces == [20.0]
    assert bench.state.closed


async def test_what_does_not_end_is_cut_off_in_time_for_the_calls(bench: Bench) -> None:
    cancelled = asyncio.Event()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    bench.drain.register(never)
    running = bench.run()
    bench.drain.begin()
    await bench.clock.advance_async(24_999)
    assert bench.server.graces == []
    with capture_logs() as logs:
        await bench.clock.advance_async(1)
        await running
    assert cancelled.is_set()
    assert bench.server.graces == [5.0]
    assert logs[0]["event"] == "cut off: it did not end within the grace"


async def test_an_ending_that_fails_does_not_stop_the_others(bench: Bench) -> None:
    ended: list[str] = []

    async def fails() -> None:
        raise RuntimeError("the prompt")

    async def ends() -> None:
        ended.append("yes")

    bench.drain.register(fails)
    bench.drain.register(ends)
    running = bench.run()
    with capture_logs() as logs:
        bench.drain.begin()
        await running
    assert ended == ["yes"]
    assert [entry["event"] for entry in logs] == ["drain begins", "an ending failed", "drain ends"]


async def test_a_handler_that_swallows_its_cancellation_does_not_keep_the_process(bench: Bench) -> None:
    bench.server.seconds = None
    running = bench.run()
    bench.drain.begin()
    await bench.clock.advance_async(30_999)
    assert not running.done()
    with capture_logs() as logs:
        await bench.clock.advance_async(1)
        await running
    assert logs[0]["event"] == "cut off: a handler did not end when it was cancelled"


async def test_a_short_grace_leaves_half_of_it_to_the_calls() -> None:
    bench = Bench()
    bench.drain = Drain(bench.clock, bench.state, grace_ms=4_000)

    async def never() -> None:
        await asyncio.Event().wait()

    bench.drain.register(never)
    running = bench.run()
    bench.drain.begin()
    await bench.clock.advance_async(2_000)
    await running
    assert bench.server.graces == [2.0]


async def test_all_servers_stop_at_once(bench: Bench) -> None:
    servers = [Server(bench.clock, 3), Server(bench.clock, 3)]
    running = asyncio.create_task(bench.drain.run(*servers))
    bench.drain.begin()
    await bench.clock.advance_async(3_000)
    await running
    assert [server.graces for server in servers] == [[30.0], [30.0]]


async def test_the_end_begins_once(bench: Bench) -> None:
    with capture_logs() as logs:
        bench.drain.begin()
        bench.drain.begin()
    assert [entry["event"] for entry in logs] == ["drain begins"]
    await bench.drain.begun()
