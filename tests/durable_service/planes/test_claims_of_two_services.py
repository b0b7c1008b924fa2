"""A claim that waits at one service, and is asked again at another one on the same store."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from random import Random
from typing import Any

import grpc.aio
import pytest
from google.protobuf.duration_pb2 import Duration

from durable_service.core.definition import Driver, TaskKey
from durable_service.core.errors import DomainError, Reason
from durable_service.server import DurableServer, ServerOptions
from durable_service.store.base import ClaimableQuery
from durable_service.stores import Stores
from sealwork.durable.v1 import task_pb2
from service_common.listeners import Listener
from service_common.sessions.limits import SessionTimes
from tests.durable_service.durable_fixture import LEASE_MS, MAIL, DurableUnderTest
from tests.harness.waiting import eventually

CLAIM: dict[str, Any] = {"drivers": [MAIL], "worker_id": "worker-1", "claim_id": "once"}
POST = task_pb2.DriverRef(id="post", version=2)
WAITING = CLAIM | {"wait": Duration(seconds=10)}


@pytest.fixture
async def other(service: DurableUnderTest) -> AsyncIterator[DurableUnderTest]:
    server = DurableServer(
        Stores(service.store, service.blobs),
        service.source,
        ServerOptions(
            [Listener("127.0.0.1:0")], times=SessionTimes(lease_ms=LEASE_MS), instance="durable-other"
        ),
        clock=service.clock,
        random=Random(8),
    )
    async with server, grpc.aio.insecure_channel(server.address) as channel:
        yield replace(service, server=server, channel=channel)


async def waiting(service: DurableUnderTest) -> "asyncio.Task[Any]":
    """A call that waits for a first task at this service."""
    call = asyncio.ensure_future(service.call("worker", "ClaimNext", **WAITING))
    await eventually(lambda: service.server._offers._seekers, describe="the call to wait")
    return call


async def granted_at(other: DurableUnderTest) -> None:
    """The other service grants the same claim a task that the waiting call does not look for."""
    await other.create("first", definition={"driver": POST})
    await other.claim("first", "once")


async def test_a_call_that_still_waits_takes_no_second_task(
    service: DurableUnderTest, other: DurableUnderTest
) -> None:
    call = await waiting(service)
    await granted_at(other)
    await service.create("second")
    claimed = (await call).claimed
    assert (claimed.task.task_id, claimed.lease.fence) == ("first", 1)
    assert (await service.task("second")).fence == 0


async def test_a_call_that_has_waited_in_vain_says_what_was_granted(
    service: DurableUnderTest, other: DurableUnderTest
) -> None:
    call = await waiting(service)
    await granted_at(other)
    await service.pass_time(10_000)
    assert (await call).claimed.task.task_id == "first"


async def test_a_store_that_refuses_a_second_task_is_asked_for_the_first(
    service: DurableUnderTest, other: DurableUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await service.create("second")
    granted = service.store.granted
    begun = False

    async def not_yet_granted(*arguments: Any) -> Any:
        nonlocal begun
        known = await granted(*arguments) if begun else None
        begun = True
        return known

    await granted_at(other)
    update = service.store.update

    async def refuse_second(key: TaskKey, *arguments: Any) -> Any:
        if key.task_id == "second":
            raise DomainError(Reason.REQUEST_ID_REUSED, "")
        return await update(key, *arguments)

    monkeypatch.setattr(service.store, "granted", not_yet_granted)
    monkeypatch.setattr(service.store, "update", refuse_second)
    assert (await service.call("worker", "ClaimNext", **CLAIM)).claimed.task.task_id == "first"


async def test_whoever_comes_second_leaves_the_oldest_tasks_to_others(
    service: DurableUnderTest, other: DurableUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        await service.create(f"task-{number}")
    found = await service.store.claimable(ClaimableQuery("acme", frozenset({Driver("mail", 1)}), limit=10))
    assert [candidate.key.task_id for candidate in found] == [f"task-{number}" for number in range(10)]
    await other.call("worker", "ClaimNext", **CLAIM)

    async def found_before(_query: ClaimableQuery) -> Any:
        return found

    tried = []
    update = service.store.update

    async def note_and_update(key: TaskKey, *arguments: Any) -> Any:
        tried.append(key.task_id)
        return await update(key, *arguments)

    monkeypatch.setattr(service.store, "claimable", found_before)
    monkeypatch.setattr(service.store, "update", note_and_update)
    claimed = (await service.call("worker", "ClaimNext", **CLAIM | {"claim_id": "second"})).claimed
    assert tried == ["task-0", claimed.task.task_id]
    # Which one it is, the seed of the service tells.
    assert claimed.task.task_id != "task-1"
