"""Watches: taken up again where they were, and not waited for when they are dead."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import grpc
import grpc.aio
from grpc_status import rpc_status

from durable_service.client.client import Client
from durable_service.client.record_reader import Event, Gap
from sealwork.durable.v1 import record_pb2
from sealwork.durable.v1 import record_service_pb2 as pb
from service_common.clocks import Clock, ManualClock, SystemClock
from tests.durable_service.client.played_service import KEY, refusal
from tests.harness.waiting import eventually


class Journal:
    """Answers each watch by the next of its scripts."""

    def __init__(self, *scripts: Callable[[Any, Any], Any]) -> None:
        self.scripts = list(scripts)
        self.asked: list[pb.WatchEventsRequest] = []

    async def WatchEvents(self, request: Any, context: Any) -> Any:
        self.asked.append(request)
        await self.scripts[min(len(self.asked), len(self.scripts)) - 1](request, context)


@asynccontextmanager
async def reading(journal: Journal, clock: Clock) -> AsyncIterator[Client]:
    server = grpc.aio.server()
    watch = grpc.unary_stream_rpc_method_handler(
        journal.WatchEvents, pb.WatchEventsRequest.FromString, pb.WatchEventsResponse.SerializeToString
    )
    service = grpc.method_handlers_generic_handler(
        "sealwork.durable.v1.RecordService", {"WatchEvents": watch}
    )
    server.add_generic_rpc_handlers((service,))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with Client(address, principal_id="alice", key=KEY, clock=clock, random=Random(1)) as client:
            yield client
    finally:
        await server.stop(0)


def batch(*sequences: int) -> pb.WatchEventsResponse:
    events = [record_pb2.Event(sequence=each, type="step", data=b"null") for each in sequences]
    return pb.WatchEventsResponse(batch=pb.EventBatch(events=events))


def sending(*frames: pb.WatchEventsResponse, error: Any = None, wait: asyncio.Event | None = None) -> Any:
    async def script(_: Any, context: Any) -> None:
        for frame in frames:
            await context.write(frame)
        if wait is not None:
            await wait.wait()
        if error is not None:
            await context.abort_with_status(rpc_status.to_status(error.to_status("durable.sealwork.dev")))

    return script


async def read(client: Client) -> list[Any]:
    entries = client.records.follow("t-1", after=3)
    return [each.sequence if isinstance(each, Event) else each async for each in entries]


async def test_a_watch_that_is_lost_goes_on_after_the_last_event() -> None:
    lost = refusal("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE)
    bookmark = pb.WatchEventsResponse(bookmark=pb.EventBookmark(sequence=7))
    journal = Journal(sending(batch(4, 5), bookmark, error=lost), sending(batch(8)))
    async with reading(journal, SystemClock()) as client:
        assert await read(client) == [4, 5, 8]
        assert [each.after_sequence for each in journal.asked] == [3, 7]


async def test_a_server_that_leaves_is_left_and_the_next_one_asked() -> None:
    drain = pb.WatchEventsResponse(drain_notice={})  # type: ignore[arg-type]
    journal = Journal(sending(batch(4), drain, wait=asyncio.Event()), sending(batch(5)))
    async with reading(journal, SystemClock()) as client:
        assert await read(client) == [4, 5]
        assert [each.after_sequence for each in journal.asked] == [3, 4]


async def test_a_gap_is_told_and_passed_over() -> None:
    gap = pb.WatchEventsResponse(gap=pb.EventGap(after_sequence=3, earliest_sequence=9, latest_sequence=12))
    lost = refusal("STORE_UNAVAILABLE", grpc.StatusCode.UNAVAILABLE)
    journal = Journal(sending(gap, error=lost), sending(batch(9)))
    async with reading(journal, SystemClock()) as client:
        assert await read(client) == [Gap(3, 9, 12), 9]
        assert [each.after_sequence for each in journal.asked] == [3, 8]


async def test_a_watch_that_is_silent_is_dead() -> None:
    clock = ManualClock()
    journal = Journal(sending(batch(4), wait=asyncio.Event()), sending(batch(5)))
    async with reading(journal, clock) as client:
        got: list[Any] = []

        async def follow() -> None:
            async for each in client.records.follow("t-1", after=3):
                got.append(each)  # noqa: PERF401 - looked at while they come

        following = asyncio.ensure_future(follow())
        await eventually(lambda: got)
        await clock.advance_async(44_999)
        assert len(journal.asked) == 1
        # The silence is over with the first, the pause before the next try with the second.
        await clock.advance_async(1)
        await clock.advance_async(5_000)
        await following
        assert [each.sequence for each in got] == [4, 5]
        assert [each.after_sequence for each in journal.asked] == [3, 4]
