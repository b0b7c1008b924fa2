"""The database is away for a while: calls say so, streams stay, and no lease is lost by it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest

from durable_service.client import Driver, NewTask, TaskContext, Worker
from durable_service.core.states import TaskState
from sealwork.durable.v1 import worker_service_pb2
from tests.durable_service.crash.nursery import Nursery
from tests.durable_service.durable_fixture import creation
from tests.durable_service.raw_client import Party, Refusal
from tests.durable_service.replicas.absence import LEASE_MS, answered, claimed, refused
from tests.durable_service.replicas.background import Background
from tests.durable_service.replicas.databases import KINDS, Database
from tests.durable_service.replicas.fleet import Fleet, fleet_on
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]
everywhere = pytest.mark.parametrize("shared", KINDS, indirect=True)


@pytest.fixture
async def fleet(shared: Database, cradle: Nursery, tmp_path: Path) -> AsyncIterator[Fleet]:
    """One service, on a database that nobody has used."""
    async with fleet_on(shared.kept(), tmp_path, cradle, 1, lease_ms=LEASE_MS) as fleet:
        yield fleet


async def outlives(fleet: Fleet, leave: Callable[[], None], come_back: Callable[[], None]) -> None:
    """What holds over any absence, of whatever kind."""
    alice, worker = fleet.party("alice", 0), fleet.party("worker", 0)
    await alice.call("CreateTask", creation())
    lease = await claimed(worker)
    stream = worker.open()
    await stream.connect(inventory={"leases": [lease]})
    async with alice.watch("WatchEvents", task_id="task", follow=True) as frames:
        assert len((await frames.next()).batch.events) == 3
        await asyncio.to_thread(leave)
        await refused(alice)
        # The stream is there, and does not say that the lease is lost.
        await stream.send(renew=worker_service_pb2.RenewTasks(renewal_id=1, leases=[lease]))
        error = Refusal.of_status((await stream.next("frame_error")).status)
        assert error.reason == "STORE_UNAVAILABLE"
        await stream.settle()
        reply = await stream.ask(complete_task={"lease": lease})
        assert Refusal.of_status(reply.error).reason == "STORE_UNAVAILABLE"
        await refused_a_stream(worker)
        await asyncio.to_thread(come_back)
        task = (await answered(lambda: alice.call("GetTask", task_id="task"))).task
        assert task.task_id == "task"
        await stream.send(renew=worker_service_pb2.RenewTasks(renewal_id=2, leases=[lease]))
        while (renewed := await stream.next("verdicts")).renewal_id != 2:
            pass
        assert not renewed.verdicts
        await answered(lambda: worker.call("CompleteTask", lease=lease))
    # Whoever follows may have been told to ask again; nothing is missing then.
    page = await answered(lambda: alice.call("ListEvents", task_id="task", after_sequence=3, page_size=10))
    assert [event.type for event in page.events] == ["task.state"]
    await stream.close()


async def refused_a_stream(worker: Party) -> None:
    """A new one is refused, before its challenge or at its hello; it may come again."""
    stream = worker.open()
    await eventually(lambda: stream.items or stream._reader.done(), 30, "a word on a new stream")
    if stream.items:
        await stream.greet(worker_id="worker-2")
    refusal = await stream.refusal()
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")


@pytest.mark.guarantee(
    "{shared}", "A killed database: calls are refused as such, streams stay, and no lease is lost by it"
)
@everywhere
async def test_a_database_that_is_killed(fleet: Fleet, shared: Database) -> None:
    await outlives(fleet, shared.kill, shared.start)


@pytest.mark.guarantee(
    "{shared}", "A database that hangs: calls are refused in time, streams stay, and no lease is lost by it"
)
@everywhere
async def test_a_database_that_hangs(fleet: Fleet, shared: Database) -> None:
    try:
        await outlives(fleet, shared.hang, shared.resume)
    finally:
        shared.resume()


@pytest.mark.guarantee(
    "{shared}", "A database that takes no writes: they are refused as such, until it does again"
)
@everywhere
async def test_a_database_that_takes_no_writes(fleet: Fleet, shared: Database) -> None:
    try:
        await outlives(fleet, shared.refuse_writes, shared.take_writes)
    finally:
        shared.take_writes()


@pytest.mark.guarantee("{shared}", "A worker works on over an outage that is shorter than its lease")
@everywhere
async def test_a_worker_over_an_outage(fleet: Fleet, shared: Database) -> None:
    begun, away = asyncio.Event(), asyncio.Event()
    background = Background()

    async def handle(context: TaskContext) -> str:
        begun.set()
        await away.wait()
        # Asked while the database is away, again and again.
        await context.reserve(1, 1, reservation_id="all")
        return "result:task"

    worker = Worker(fleet.client("worker"), {"work@1": handle})
    background.run(worker.run())
    alice = fleet.client("alice")
    await alice.tasks.create(NewTask("task", Driver("work", 1), input=1))
    await asyncio.wait_for(begun.wait(), 30)
    await asyncio.to_thread(shared.kill)
    away.set()
    await asyncio.to_thread(shared.start)
    task, met = await asyncio.wait_for(alice.tasks.wait("task"), 60)
    background.raise_failures()
    await background.close()
    assert (met, task.state, task.result_ref) == (True, TaskState.COMPLETED, "result:task")
    assert task.usage is not None
    assert (task.usage.attempts, task.usage.reserved_tokens) == (1, 1)
