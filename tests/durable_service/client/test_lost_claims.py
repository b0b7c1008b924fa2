"""Claims and ends that were committed, and whose answers never came: each is found out under its id."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

import grpc.aio
import pytest

from durable_service.client import (
    Client,
    Condition,
    Connection,
    DurableError,
    RunEnd,
    RunReport,
    StopCause,
    Task,
    TaskContext,
    TaskState,
    Worker,
)
from service_common.channel_options import session_channel_options
from tests.durable_service.client.real_service import key_of, mail, never, real_service
from tests.harness.fault_proxy import FaultProxy, fault_proxy
from tests.harness.waiting import eventually


@dataclass(frozen=True, slots=True)
class SplitConnection(Connection):
    """Sessions and calls go by different ways."""

    session_address: str = ""

    def session_channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.session_address, options=session_channel_options())


@dataclass
class Scene:
    """A service, and a worker's two ways to it."""

    alice: Client
    worker_client: Client
    calls: FaultProxy
    sessions: FaultProxy

    async def granted(self) -> Task:
        """The task, once it was granted to somebody."""

        async def leased() -> Task | None:
            task = await self.alice.tasks.get("t-1")
            return task if Condition.LEASED in task.conditions else None

        return await eventually(leased, 20, "a lease")

    async def journal(self) -> list[str]:
        return [event.type async for event in self.alice.records.follow("t-1", follow=False)]  # type: ignore[union-attr]

    @asynccontextmanager
    async def working(self, worker: Worker) -> AsyncIterator["asyncio.Task[None]"]:
        running = asyncio.create_task(worker.run())
        try:
            yield running
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with real_service() as service:
        host, _, port = service.address.rpartition(":")
        async with fault_proxy(host, int(port)) as calls, fault_proxy(host, int(port)) as sessions:
            connection = SplitConnection(calls.address, session_address=sessions.address)
            client = Client(connection, principal_id="worker", key=key_of("worker"), random=Random(1))
            async with client:
                yield Scene(await service.client(), client, calls, sessions)


async def connected(worker: Worker) -> None:
    """Lets the worker have a connection: nothing is sent on one that has heard nothing."""
    with pytest.raises(DurableError, match="TASK_NOT_FOUND"):
        await worker.run_task("no-task")


async def quick(_: TaskContext) -> str:
    return "done"


async def test_the_lease_of_a_lost_answer_is_used() -> None:
    reports: list[RunReport] = []
    async with scene() as it:
        worker = Worker(it.worker_client, {"mail@1": quick}, on_end=reports.append)
        async with it.working(worker):
            await worker.opened()
            await eventually(lambda: it.calls.down.data_frames, 20, "an answer to the first claim")
            it.calls.half_open("down")
            await it.alice.tasks.create(mail())
            await it.granted()
            assert reports == []
            await it.calls.restore()
            task, _ = await it.alice.tasks.wait("t-1")
        assert (task.state, task.usage and task.usage.attempts) == (TaskState.COMPLETED, 1)
        assert "lease.released" not in await it.journal()
        assert [report.end for report in reports] == [RunEnd.COMPLETED]


async def test_a_new_stream_waits_for_the_claim_and_names_its_lease() -> None:
    async with scene() as it:
        worker = Worker(it.worker_client, {"mail@1": quick})
        async with it.working(worker):
            await worker.opened()
            await eventually(lambda: it.calls.down.data_frames, 20, "an answer to the first claim")
            it.calls.half_open("down")
            await it.alice.tasks.create(mail())
            await it.granted()
            opened = it.sessions.opened
            await it.sessions.reset_all()
            # The next stream is on its way, and the worker knows of no lease yet.
            await eventually(lambda: it.sessions.opened > opened, 20, "the next stream")
            await it.calls.restore()
            task, _ = await it.alice.tasks.wait("t-1")
        assert (task.state, task.usage and task.usage.attempts) == (TaskState.COMPLETED, 1)
        assert "lease.released" not in await it.journal()


async def test_an_end_whose_answer_was_lost_is_reported_as_it_was() -> None:
    reports: list[RunReport] = []
    entered, go = asyncio.Queue[TaskContext](), asyncio.Event()

    async def handler(context: TaskContext) -> str:
        entered.put_nowait(context)
        await go.wait()
        return "done"

    async with scene() as it:
        worker = Worker(it.worker_client, {"mail@1": handler}, on_end=reports.append)
        async with it.working(worker):
            await worker.opened()
            await it.alice.tasks.create(mail())
            context = await entered.get()
            it.calls.half_open("down")
            it.sessions.half_open("down")
            go.set()
            task, met = await it.alice.tasks.wait("t-1")
            assert (task.state, met) == (TaskState.COMPLETED, True)
            # The next stream says that the lease is over, before anybody has said why.
            await it.sessions.restore()
            await eventually(lambda: context.signal.is_set, 20, "the news")
            assert (context.signal.cause, reports) == (StopCause.LEASE_LOST, [])
            await it.calls.restore()
            await eventually(lambda: reports, 20, "the end")
        assert [report.end for report in reports] == [RunEnd.COMPLETED]


async def test_a_worker_that_stops_gives_back_what_it_never_heard_of() -> None:
    async with scene() as it:
        it.sessions.cut(refuse=True)
        worker = Worker(it.worker_client, {"mail@1": never})
        async with it.working(worker) as running:
            await eventually(lambda: it.calls.up.data_frames, 20, "a claim")
            it.calls.half_open("down")
            await it.alice.tasks.create(mail())
            await it.granted()
            stopping = asyncio.create_task(worker.stop())
            await it.calls.restore()
            await stopping
            await running
        task = await it.alice.tasks.get("t-1")
        assert Condition.CLAIMABLE in task.conditions
        assert [kind for kind in await it.journal() if kind.startswith("lease.")] == [
            "lease.granted",
            "lease.released",
        ]


async def test_a_worker_that_stops_while_it_waits_for_work_claims_nothing_more() -> None:
    async with scene() as it:
        it.sessions.cut(refuse=True)
        worker = Worker(it.worker_client, {"mail@1": never})
        async with it.working(worker) as running:
            await eventually(lambda: it.calls.up.data_frames, 20, "a claim")
            await worker.stop()
            await running
        await it.alice.tasks.create(mail())
        assert Condition.LEASED not in (await it.alice.tasks.get("t-1")).conditions
        assert "lease.granted" not in await it.journal()


async def test_a_task_claimed_by_its_id_is_given_back_when_nobody_waits_for_it_any_more() -> None:
    async with scene() as it:
        await it.alice.tasks.create(mail())
        async with Worker(it.worker_client, {"mail@1": never}) as worker:
            await connected(worker)
            it.calls.half_open("down")
            asking = asyncio.create_task(worker.run_task("t-1"))
            await it.granted()
            asking.cancel()
            await it.calls.restore()
        assert Condition.CLAIMABLE in (await it.alice.tasks.get("t-1")).conditions


async def test_a_task_claimed_by_its_id_again_is_claimed_under_the_same_lease() -> None:
    async with scene() as it:
        await it.alice.tasks.create(mail())
        async with Worker(it.worker_client, {"mail@1": quick}) as worker:
            await connected(worker)
            it.calls.half_open("down")
            asking = asyncio.create_task(worker.run_task("t-1"))
            await it.granted()
            asking.cancel()
            await asyncio.wait((asking,))
            await it.calls.restore()
            report = await worker.run_task("t-1")
            assert isinstance(report, RunReport)
            assert (report.end, report.fence) == (RunEnd.COMPLETED, 1)
