"""A database hangs until the watches of its service end: whoever follows asks again, and misses nothing."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest

from durable_service.client.calls import Calls, ResponseT
from durable_service.client.errors import DurableError
from durable_service.client.record_reader import Event, RecordReader
from service_common.clocks import SystemClock
from service_common.connection import Connection
from service_common.unary_calls import Method, RequestSigner
from tests.durable_service.crash.nursery import Nursery
from tests.durable_service.durable_fixture import creation
from tests.durable_service.replicas.absence import LEASE_MS, answered, claimed
from tests.durable_service.replicas.background import Background
from tests.durable_service.replicas.databases import KINDS, Database
from tests.durable_service.replicas.fleet import Fleet, fleet_on
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]


class NotedCalls(Calls):
    """Asks for signs of life each second, so that the service needs its database soon.

    Attributes:
        after: The position that each watch was asked for from.
        ends: What watches were ended with.
    """

    def __init__(self, fleet: Fleet) -> None:
        clock = SystemClock()
        super().__init__(
            Connection(fleet.replicas[0].address).calls_channel,
            RequestSigner("alice", fleet.keys["alice"].signer, clock),
            clock=clock,
            random=Random(1),
        )
        self.after: list[int] = []
        self.ends: list[DurableError] = []

    async def follow(self, method: Method[Any, ResponseT], request: Any) -> AsyncGenerator[ResponseT, None]:
        request.bookmark_interval.FromSeconds(1)
        self.after.append(request.after_sequence)
        try:
            async for message in super().follow(method, request):
                yield message
        except DurableError as error:
            self.ends.append(error)
            raise


@pytest.mark.parametrize("shared", KINDS, indirect=True)
async def test_whoever_follows_over_a_hang(shared: Database, cradle: Nursery, tmp_path: Path) -> None:
    seen: list[int] = []
    async with fleet_on(shared.kept(), tmp_path, cradle, 1, lease_ms=LEASE_MS) as fleet:
        alice, worker, calls = fleet.party("alice", 0), fleet.party("worker", 0), NotedCalls(fleet)

        async def follow() -> None:
            async for entry in RecordReader(calls).follow("task"):
                assert isinstance(entry, Event)
                seen.append(entry.sequence)

        await alice.call("CreateTask", creation())
        lease = await claimed(worker)
        background = Background()
        following = background.run(follow())
        try:
            await eventually(lambda: seen == [1, 2, 3])
            shared.hang()
            await eventually(lambda: calls.ends, 60, "the watch to end")
            shared.resume()
            await answered(lambda: worker.call("CompleteTask", lease=lease))
            # It ends by itself, after the event that ends the task.
            await asyncio.wait_for(following, 60)
            background.raise_failures()
        finally:
            shared.resume()
            await background.close()
            await calls.close()
    end = calls.ends[0]
    assert (end.code, end.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    assert end.retry_after_ms is not None
    assert seen == [1, 2, 3, 4]
    assert calls.after == [0] + [3] * len(calls.ends)
