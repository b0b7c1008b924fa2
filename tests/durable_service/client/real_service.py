"""A durable service in this process, on the system's clock, and its parties as the SDK knows them."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from durable_service.blobs.memory import MemoryBlobStore
from durable_service.client import Client, Driver, NewTask, PrincipalKey, RunReport, TaskContext, Worker
from durable_service.principals_source import PrincipalsSource
from durable_service.server import DurableServer, ServerOptions
from durable_service.store.clock import wall_ms
from durable_service.store.memory import MemoryTaskStore
from durable_service.stores import Stores
from service_common.clocks import SystemClock
from service_common.listeners import Listener
from service_common.sessions.limits import SessionTimes
from tests.durable_service.durable_fixture import PRINCIPALS
from tests.harness.waiting import eventually

MAIL = Driver("mail", 1)


@dataclass
class RealService:
    """The service and whoever calls it; clients and workers are closed with it."""

    address: str
    source: PrincipalsSource
    ends: AsyncExitStack

    async def client(self, name: str = "alice", address: str | None = None) -> Client:
        client = Client(address or self.address, principal_id=name, key=key_of(name), random=Random(1))
        return await self.ends.enter_async_context(client)

    async def worker(
        self, handler: Any, name: str = "worker", address: str | None = None, **options: Any
    ) -> "RunningWorker":
        """A worker for mail@1 that has its stream."""
        reports: list[RunReport] = []
        worker = Worker(
            await self.client(name, address), {"mail@1": handler}, on_end=reports.append, **options
        )
        running = RunningWorker(worker, reports)
        await self.ends.enter_async_context(running_worker(running))
        await worker.opened()
        return running


@dataclass
class RunningWorker:
    """A worker and how its runs have ended."""

    worker: Worker
    reports: list[RunReport]

    async def report(self, number: int = 0) -> RunReport:
        await eventually(lambda: len(self.reports) > number, 20, lambda: f"report {number} of {self.reports}")
        return self.reports[number]


@asynccontextmanager
async def running_worker(running: RunningWorker) -> AsyncIterator[None]:
    import asyncio

    task = asyncio.ensure_future(running.worker.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def real_service(lease_ms: int = 60_000) -> AsyncIterator[RealService]:
    source = PrincipalsSource(PRINCIPALS)
    times = SessionTimes(lease_ms=lease_ms, renew_ms=lease_ms // 3)
    options = ServerOptions([Listener("127.0.0.1:0")], times=times)
    stores = Stores(MemoryTaskStore(), MemoryBlobStore(wall_ms))
    async with (
        DurableServer(stores, source, options, clock=SystemClock(), random=Random(7)) as server,
        AsyncExitStack() as ends,
    ):
        yield RealService(server.address, source, ends)


def key_of(name: str) -> PrincipalKey:
    """The key of a principal, always the same one."""
    return PrincipalKey(hashlib.sha256(name.encode()).digest())


def mail(task_id: str = "t-1", **fields: Any) -> NewTask:
    return NewTask(task_id, driver=MAIL, **fields)


async def never(_: TaskContext) -> None:
    raise AssertionError("this handler must not run")
