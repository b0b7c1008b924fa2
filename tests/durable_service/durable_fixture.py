"""A durable service to test against: in this process on a clock that stands still, or as a process."""

import asyncio
import hashlib
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import grpc.aio

from durable_service.admission import Admission
from durable_service.blobs.memory import MemoryBlobStore
from durable_service.principals import Principal, Principals, Role
from durable_service.principals_file import format_principals
from durable_service.principals_source import PrincipalsSource
from durable_service.server import DurableServer, ServerOptions
from durable_service.store.base import StoreLimits, TaskStore
from durable_service.store.clock import StoreClock
from durable_service.store.memory import MemoryTaskStore
from durable_service.store.sqlite import SqliteTaskStore
from durable_service.stores import Stores
from sealwork.durable.v1 import lease_pb2, task_pb2, task_service_pb2
from service_common.clocks import ManualClock
from service_common.listeners import Listener
from service_common.sessions.limits import SessionTimes
from service_common.signing import Signer
from tests.durable_service.raw_client import Party
from tests.harness.processes import RunningProcess, running
from tests.harness.waiting import eventually

START_MS = 1_700_000_000_000
LEASE_MS = 60_000
REPOSITORY = Path(__file__).parents[2]
READY = re.compile(r'"address":"([^"]+)".*durable service is serving')
MAIL = task_pb2.DriverRef(id="mail", version=1)
DAY_MS = 86_400_000


def signer_of(name: str) -> Signer:
    """The key of a principal, always the same one."""
    return Signer(hashlib.sha256(name.encode()).digest())


def principal(name: str, *roles: Role, tenant: str = "acme", actor: str = "", drivers: str = "") -> Principal:
    return Principal(
        name,
        tenant,
        actor or name,
        frozenset(roles),
        signer_of(name).public_key,
        drivers=frozenset(drivers.split()),
    )


# alice and bob are two actors of acme; eve has every role that one may have, in another tenant.
PRINCIPALS = Principals.of(
    [
        principal("alice", Role.SUBMITTER),
        principal("bob", Role.SUBMITTER),
        principal("worker", Role.WORKER, drivers="mail post@2"),
        principal("other-worker", Role.WORKER, drivers="mail"),
        principal("painter", Role.WORKER, drivers="paint"),
        principal("carol", Role.APPROVER),
        principal("dave", Role.APPROVER),
        principal("operator", Role.OPERATOR),
        principal("admin", Role.ADMIN),
        principal("eve", Role.SUBMITTER, Role.APPROVER, Role.OPERATOR, Role.ADMIN, tenant="evil"),
        principal("eve-worker", Role.WORKER, tenant="evil", drivers="*"),
    ]
)


@dataclass
class DurableUnderTest:
    """A service in this process, with the parties of `PRINCIPALS`."""

    server: DurableServer
    store: TaskStore
    blobs: MemoryBlobStore
    source: PrincipalsSource
    clock: ManualClock
    channel: Any

    def party(self, name: str) -> Party:
        return Party(self.channel, name, signer_of(name), self.clock.now_ms)

    async def call(self, caller: str, name: str, request: Any = None, /, **fields: Any) -> Any:
        return await self.party(caller).call(name, request, **fields)

    async def create(self, task_id: str = "task", caller: str = "alice", **fields: Any) -> Any:
        return await self.call(caller, "CreateTask", creation(task_id, **fields))

    async def claim(self, task_id: str = "task", claim_id: str = "", caller: str = "worker") -> Any:
        """Claims a task by its id, and returns its lease as the holder names it."""
        answer = await self.call(
            caller,
            "ClaimTask",
            task_id=task_id,
            claim_id=claim_id or f"claim-of-{task_id}",
            worker_id="worker-1",
        )
        assert answer.HasField("claimed"), answer
        return lease_pb2.LeaseRef(task_id=task_id, worker_id="worker-1", fence=answer.claimed.lease.fence)

    async def running(self, task_id: str = "task", **fields: Any) -> Any:
        """A task that was created and claimed; its lease."""
        await self.create(task_id, **fields)
        return await self.claim(task_id)

    async def task(self, task_id: str = "task", caller: str = "operator") -> task_pb2.Task:
        answer = await self.call(caller, "GetTask", task_id=task_id, view=task_pb2.TASK_VIEW_WORKER)
        task: task_pb2.Task = answer.task
        return task

    async def pass_time(self, ms: int) -> None:
        await self.clock.advance_async(ms)

    async def elapse(self, ms: int) -> None:
        """Lets time pass for workers that read: no write that has begun is overtaken by the clock's leap."""
        sessions = self.server.streams.sessions
        while ms > 0:
            await eventually(lambda: all(session.outbound._writer is None for session in sessions))
            step = min(ms, 5_000)
            await self.clock.advance_async(step)
            ms -= step


def creation(task_id: str = "task", **fields: Any) -> task_service_pb2.CreateTaskRequest:
    """A task for the driver mail@1, with the grant that the vectors of the protocol have."""
    definition = {
        "manifest_hash": "manifest",
        "input_ref": "input",
        "policy_revision": 1,
        "grant_refs": ["grant:send"],
        "driver": MAIL,
    } | fields.pop("definition", {})
    return task_service_pb2.CreateTaskRequest(
        task_id=task_id,
        run=task_pb2.TaskRun(session_id="session", run_id="run", root_run_id="root"),
        definition=task_pb2.TaskDefinition(**definition),
        **fields,
    )


@asynccontextmanager
async def serving(
    times: SessionTimes | None = None,
    *,
    principals: Principals = PRINCIPALS,
    database: Path | None = None,
    limits: StoreLimits | None = None,
    admission: Admission | None = None,
    **options: Any,
) -> AsyncIterator[DurableUnderTest]:
    """Serves; time passes only when a test lets it.

    Args:
        database: of a SQLite store; tasks are in memory without one.
    """
    clock = ManualClock(START_MS)
    store = open_store(clock, database, limits)
    blobs = MemoryBlobStore(clock.now_ms)
    source = PrincipalsSource(principals)
    given = ServerOptions(
        [Listener("127.0.0.1:0")], times=times or SessionTimes(lease_ms=LEASE_MS), instance="durable-test"
    )
    server = DurableServer(
        Stores(store, blobs),
        source,
        replace(given, **options),
        clock=clock,
        random=Random(7),
        admission=admission,
    )
    async with server, grpc.aio.insecure_channel(server.address) as channel:
        yield DurableUnderTest(server, store, blobs, source, clock, channel)
    await store.close()


def open_store(clock: ManualClock, database: Path | None, limits: StoreLimits | None = None) -> TaskStore:
    """A store whose time is the test's."""

    def steady() -> int:
        return round(clock.monotonic() * 1000)

    if database is None:
        return MemoryTaskStore(StoreClock(clock.now_ms, steady), limits)
    return SqliteTaskStore(database, limits=limits, wall=clock.now_ms, steady=steady)


@asynccontextmanager
async def durable_process(
    folder: Path, *flags: str, store: str | None = None, principals: Principals = PRINCIPALS
) -> AsyncIterator[tuple[RunningProcess, str]]:
    """Runs `durable-service serve --dev` as a process of its own, and yields it with its address."""
    path = folder / "principals.json"
    await asyncio.to_thread(path.write_bytes, format_principals(principals))
    argv = [sys.executable, "-m", "durable_service", "serve", "--dev", "--listen", "127.0.0.1:0"]
    argv += ["--log-format", "json", "--principals", str(path)]
    argv += ["--store", store or f"sqlite:///{folder / 'tasks.db'}", *flags]
    search = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'protos/gen/python'}"}
    async with running(argv, env=search, cwd=folder, ready=READY) as process:
        assert process.ready is not None
        yield process, process.ready[1]
