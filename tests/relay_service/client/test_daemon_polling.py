"""A device whose streams something on the way kills: it goes on by calls, and takes a stream when it can."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import grpc.aio
import pytest

from relay_service.client import Connection, Daemon, GeneratePayload, JobContext, OkOutcome, RelayError
from relay_service.client.daemon_polling import pause_at
from relay_service.client.outcomes import Outcome
from service_common.channel_options import session_channel_options
from service_common.clocks import ManualClock, SystemClock
from tests.harness.fault_proxy import FaultProxy, fault_proxy
from tests.harness.waiting import eventually
from tests.relay_service.client.real_relay import (
    DEVICE_KEYS,
    GENERATE,
    SITE_KEYS,
    RealRelay,
    projection,
    real_relay,
)
from tests.relay_service.client.test_site_relay import echo, shop


@dataclass(frozen=True, slots=True)
class SplitConnection(Connection):
    """Sessions go by way of a proxy, calls do not."""

    session_address: str = ""

    def session_channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.session_address, options=session_channel_options())


class HastyClock(ManualClock):
    """Spans pass as fast as a test lets them; the wall half is the true one: signatures are dated by it."""

    def now_ms(self) -> int:
        return SystemClock().now_ms()


@asynccontextmanager
async def device(
    relay: RealRelay, proxy: FaultProxy, handler: Any = echo, **options: Any
) -> AsyncIterator[tuple[Daemon, "asyncio.Future[None]", ManualClock]]:
    """A device on a clock of its own, which runs while it waits for something."""
    clock = HastyClock()
    daemon = Daemon(
        SplitConnection(relay.address, session_address=proxy.address),
        runner_id="desk",
        keys=DEVICE_KEYS,
        pins=[SITE_KEYS.public],
        matrix=[GENERATE],
        handlers={"llm.generate": handler},
        owner="alice",
        clock=clock,
        random=Random(5),
        **options,
    )
    running = asyncio.ensure_future(daemon.run())
    try:
        yield daemon, running, clock
    finally:
        stopping = asyncio.ensure_future(daemon.stop(grace_seconds=0))
        while not (stopping.done() and running.done()):
            clock.advance(1_000)
            await asyncio.wait((stopping, running), timeout=0.01)
        running.exception()


@asynccontextmanager
async def proxied(relay: RealRelay) -> AsyncIterator[FaultProxy]:
    host, port = relay.address.rsplit(":", 1)
    async with fault_proxy(host, int(port)) as proxy:
        yield proxy


async def passes(clock: ManualClock, predicate: Any, what: str) -> None:
    def passed() -> bool:
        clock.advance(100)
        return bool(predicate())

    await eventually(passed, 20, what)


async def answers(clock: ManualClock, *jobs: Any) -> list[str]:
    waiting = asyncio.gather(*(job.result(20) for job in jobs))
    await passes(clock, waiting.done, "answers")
    return [result.text for result in await waiting]


async def test_work_goes_on_without_streams_and_back_on_one() -> None:
    async with real_relay() as relay, proxied(relay) as proxy, shop(relay) as site:
        proxy.cut(refuse=True)
        async with device(relay, proxy) as (daemon, _, clock):
            jobs = [await site.enqueue(GeneratePayload(str(number)), owner="alice") for number in range(5)]
            assert await answers(clock, *jobs) == [f"echo: {number}" for number in range(5)]
            assert not daemon.connected

            await proxy.restore()
            await passes(clock, lambda: daemon.connected, "a stream")
            again = await site.enqueue(GeneratePayload("by stream"), owner="alice")
            assert await answers(clock, again) == ["echo: by stream"]


async def test_a_job_that_runs_when_the_stream_is_lost_keeps_its_lease_and_is_delivered() -> None:
    begun, gate = asyncio.Queue[JobContext](), asyncio.Event()

    async def gated(context: JobContext) -> Outcome:
        begun.put_nowait(context)
        await gate.wait()
        return OkOutcome("done")

    async with (
        real_relay() as relay,
        proxied(relay) as proxy,
        shop(relay) as site,
        device(relay, proxy, gated) as (daemon, _, clock),
    ):
        await passes(clock, lambda: daemon.connected, "a stream")
        job = await site.enqueue(GeneratePayload("x"), owner="alice")
        await passes(clock, begun.qsize, "the begin")
        context = begun.get_nowait()
        proxy.cut(refuse=True)
        await proxy.reset_all()
        await passes(clock, lambda: not daemon.connected, "the loss")
        # Three leases long by the device's clock: it has been renewed by calls, or it would have stopped.
        for _ in range(180):
            await clock.advance_async(1_000)
            # Its clock runs ahead of what is on its way: half a minute is left to a renewal that was sent.
            await eventually(lambda: context.seconds_left() > 30, 20, "a renewal")
        assert daemon.active == 1
        gate.set()
        assert await answers(clock, job) == ["done"]


async def test_a_cancel_reaches_a_device_without_a_stream() -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def forever(context: JobContext) -> Outcome:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return OkOutcome("never")

    async with real_relay() as relay, proxied(relay) as proxy, shop(relay) as site:
        proxy.cut(refuse=True)
        async with device(relay, proxy, forever) as (daemon, _, clock):
            job = await site.enqueue(GeneratePayload("x"), owner="alice")
            # Sealed is not begun: one that is withdrawn before its payload is there never begins.
            await passes(clock, begun.is_set, "the begin")
            assert await job.cancel()
            await passes(clock, lambda: stopped.is_set() and daemon.active == 0, "the end of the work")


async def test_a_device_that_was_revoked_ends_without_a_stream_too() -> None:
    async with real_relay() as relay, proxied(relay) as proxy:
        proxy.cut(refuse=True)
        async with device(relay, proxy) as (_, running, clock):
            relay.source.replace(projection(revoked=True))
            await passes(clock, running.done, "the end")
            with pytest.raises(RelayError, match="DEVICE_REVOKED"):
                await running


def test_the_rungs_of_the_ladder() -> None:
    bounds = [(0.2, 0.5), (1.2, 1.5), (2.2, 2.5), (4.2, 4.5), (6.2, 6.5), (8.2, 8.5), (8.5, 11.5)]
    random = Random(1)

    for rung, (least, most) in enumerate(bounds):
        assert all(least <= pause_at(rung, random) <= most for _ in range(100))
