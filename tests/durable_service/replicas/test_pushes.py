"""What happens at one service reaches who is at another, by a message, and without one by a slow look."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from durable_service.client import Driver, NewTask, Worker
from durable_service.client.approvals import ApprovalState
from durable_service.core.states import TaskState
from sealwork.durable.v1 import lease_pb2, worker_service_pb2
from tests.durable_service.crash.nursery import Nursery
from tests.durable_service.durable_fixture import MAIL, creation
from tests.durable_service.raw_client import WorkerStream
from tests.durable_service.replicas.background import Background
from tests.durable_service.replicas.crew import Crew
from tests.durable_service.replicas.databases import KINDS, Database
from tests.durable_service.replicas.fleet import Fleet, fleet_on

pytestmark = [pytest.mark.process, pytest.mark.parametrize("shared", KINDS, indirect=True)]

# No renewal comes of its own before a third of it, and no look at the changes is due within these tests.
LEASE_MS = 60_000
NEVER_SECONDS = 3_600.0
# Far above what a message takes, on a busy machine too, and far below everything that would come without one.
SOON_SECONDS = 8
HEARING = {"look_seconds": NEVER_SECONDS}
DEAF = {"look_seconds": 0.2, "deaf": True}

Serve = Callable[..., AbstractAsyncContextManager[Fleet]]


@pytest.fixture
def serve(shared: Database, cradle: Nursery, tmp_path: Path) -> Serve:
    """Two services on a database that nobody has used."""

    @asynccontextmanager
    async def two(
        here: dict[str, Any], there: dict[str, Any] | None = None, lease_ms: int = LEASE_MS
    ) -> AsyncIterator[Fleet]:
        options = [here, here if there is None else there]
        async with fleet_on(shared.kept(), tmp_path, cradle, 2, lease_ms=lease_ms, options=options) as fleet:
            yield fleet

    return two


async def soon(came: Any) -> Any:
    return await asyncio.wait_for(came, SOON_SECONDS)


async def create(fleet: Fleet, task_id: str = "task", **fields: Any) -> None:
    await fleet.party("alice", 0).call("CreateTask", creation(task_id, **fields))


async def claimed(fleet: Fleet, replica: int = 0) -> lease_pb2.LeaseRef:
    answer = await fleet.party("worker", replica).call(
        "ClaimTask", task_id="task", claim_id="claim", worker_id="worker-1"
    )
    return lease_pb2.LeaseRef(task_id="task", worker_id="worker-1", fence=answer.claimed.lease.fence)


async def stream_at(fleet: Fleet, replica: int, **hello: Any) -> WorkerStream:
    stream = fleet.party("worker", replica).open()
    await stream.connect(**hello)
    return stream


async def state_told(stream: WorkerStream, fence: int) -> int:
    """The next thing that is said of this lease, but that it is held."""
    while True:
        for verdict in (await stream.next("verdicts")).verdicts:
            if verdict.lease.fence == fence and verdict.state != lease_pb2.LEASE_STATE_ACTIVE:
                return int(verdict.state)


@pytest.mark.guarantee("{shared}", "A task created at one service is offered at once to workers of another")
async def test_a_task_is_offered(serve: Serve) -> None:
    async with serve(HEARING) as fleet:
        stream = await stream_at(fleet, 1, drivers=[MAIL])
        await create(fleet)
        assert (await soon(stream.next("tasks_available"))).driver == MAIL
        await stream.close()


@pytest.mark.guarantee("{shared}", "A cancel at one service reaches at once the holder at another")
@pytest.mark.parametrize("known", [True, False], ids=["heard-of", "unheard-of"])
async def test_a_cancel_reaches_the_holder(serve: Serve, *, known: bool) -> None:
    async with serve(HEARING) as fleet:
        await create(fleet)
        lease = await claimed(fleet)
        if not known:
            # It comes back without having heard of what was there before.
            await fleet.replicas[1].kill()
            await fleet.replicas[1].start()
        stream = await stream_at(fleet, 1, inventory={"leases": [lease]})
        await fleet.party("alice", 0).call("CancelTask", task_id="task")
        assert await soon(state_told(stream, 1)) == lease_pb2.LEASE_STATE_CANCEL_REQUESTED
        await stream.close()


@pytest.mark.guarantee(
    "{shared}", "A lease that one service writes off is lost at once to its holder at another"
)
@pytest.mark.parametrize("known", [True, False], ids=["heard-of", "unheard-of"])
async def test_a_lease_that_is_over_is_lost_to_its_holder(serve: Serve, *, known: bool) -> None:
    async with serve(HEARING, {**HEARING, "sweeps": False}, 2_000) as fleet:
        await create(fleet)
        lease = await claimed(fleet)
        if not known:
            await fleet.replicas[1].kill()
            await fleet.replicas[1].start()
            lease = await renewed_or_claimed(fleet, lease)
        stream = await stream_at(fleet, 1, inventory={"leases": [lease]})
        assert await soon(state_told(stream, lease.fence)) == lease_pb2.LEASE_STATE_LOST
        await stream.close()


async def renewed_or_claimed(fleet: Fleet, lease: lease_pb2.LeaseRef) -> lease_pb2.LeaseRef:
    """The lease again, which may have run out while a service came back."""
    answer = await fleet.party("worker", 0).call("RenewLeases", leases=[lease])
    if answer.verdicts[0].state == lease_pb2.LEASE_STATE_ACTIVE:
        return lease
    answer = await fleet.party("worker", 0).call(
        "ClaimTask", task_id="task", claim_id="again", worker_id="worker-1"
    )
    return lease_pb2.LeaseRef(task_id="task", worker_id="worker-1", fence=answer.claimed.lease.fence)


@pytest.mark.guarantee(
    "{shared}", "An approval is asked for, decided and used across services, without a delay"
)
async def test_an_approval_across_services(serve: Serve) -> None:
    async with serve(HEARING) as fleet:
        crew = Crew(fleet)
        background = Background()
        # No stream hint is lost here, so the worker asks for nothing by itself for a minute.
        worker = Worker(
            fleet.client("worker", fleet.replicas[1].address), {"work@1": crew._handle}, worker_id="worker-1"
        )
        background.run(worker.run())
        await worker.opened()
        at_first = fleet.replicas[0].address
        alice, bob = fleet.client("alice", at_first), fleet.client("bob", at_first)

        async def decide() -> None:
            async for approval in bob.approvals.watch():
                if approval.state is ApprovalState.PENDING:
                    await bob.approvals.decide(approval, approved=True)

        background.run(decide())
        await alice.tasks.create(NewTask("gated-1", Driver("work", 1), input={"n": 1}))
        task, met = await asyncio.wait_for(alice.tasks.wait("gated-1"), 20)
        await background.close()
        assert (met, task.state) == (True, TaskState.COMPLETED)
        assert sorted(crew.world.effects.values()) == [1, 1]


@pytest.mark.guarantee(
    "{shared}", "A change that no message told another service of is found by its slow look"
)
async def test_messages_that_are_lost(serve: Serve) -> None:
    async with serve(DEAF) as fleet:
        stream = await stream_at(fleet, 1, drivers=[MAIL])
        async with fleet.party("alice", 1).watch("WatchTasks") as frames:
            await frames.next()
            await create(fleet)
            assert (await soon(stream.next("tasks_available"))).driver == MAIL
            assert [task.task_id for task in (await frames.next()).batch.tasks] == ["task"]
        lease = await claimed(fleet)
        await stream.send(inventory=worker_service_pb2.LeaseInventory(leases=[lease]))
        await stream.settle()
        await fleet.party("alice", 0).call("CancelTask", task_id="task")
        assert await soon(state_told(stream, 1)) == lease_pb2.LEASE_STATE_CANCEL_REQUESTED
        await stream.close()


@pytest.mark.guarantee(
    "{shared}", "What was committed while a service did not hear is told once it hears again"
)
async def test_a_connection_for_messages_that_is_ended(serve: Serve, shared: Database) -> None:
    async with serve(HEARING) as fleet, fleet.party("alice", 1).watch("WatchTasks") as frames:
        await frames.next()
        await asyncio.to_thread(shared.deafen)
        await create(fleet)
        told = await asyncio.wait_for(frames.next(), 20)
        assert [task.task_id for task in told.batch.tasks] == ["task"]
        # And the next one by a message again.
        await create(fleet, "next")
        assert [task.task_id for task in (await soon(frames.next())).batch.tasks] == ["next"]


@pytest.mark.guarantee("{shared}", "Several services write off what is over, and each of it once")
async def test_what_is_over_is_written_off_once(serve: Serve) -> None:
    async with serve({}) as fleet:
        names = [f"task-{number}" for number in range(30)]
        for name in names:
            await create(fleet, name, start_within=Duration(seconds=3))
        alice = fleet.client("alice")
        for name in names:
            task, met = await asyncio.wait_for(alice.tasks.wait(name), 30)
            assert (met, task.state) == (True, TaskState.CANCELED)
        for name in names:
            events = await alice.records.events(name)
            assert [(event.sequence, event.type) for event in events] == [
                (1, "task.created"),
                (2, "task.state"),
                (3, "task.state"),
            ]
