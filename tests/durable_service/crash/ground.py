"""One service on this machine with its principals, and short words for those who use it."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from durable_service.client import (
    Budget,
    Client,
    Condition,
    Driver,
    DurableError,
    NewTask,
    PrincipalKey,
    Task,
    View,
)
from durable_service.client.actions import Action, action_of
from durable_service.client.methods import LIST_ACTIONS
from durable_service.principals import Principal, Principals, Role
from durable_service.principals_file import format_principals
from sealwork.durable.v1.action_service_pb2 import ListActionsRequest
from tests.harness.waiting import eventually

from .effects import effects_in
from .failing_store import TIME_PASSES
from .kept import Kept, file_in
from .nursery import Life, Nursery

Result = TypeVar("Result")

# Far longer than a worker takes, on a busy machine too: it is over when a test says so, see `pass_lease`.
LEASE_MS = 20_000
# For those whose own clock is to say that it is over. No worker can be relied on to get anything done in it.
SHORT_LEASE_MS = 1_000
ROLES = {
    "alice": ("alice", {Role.SUBMITTER}, frozenset[str]()),
    "bob": ("bob", {Role.APPROVER}, frozenset[str]()),
    "worker": ("fleet", {Role.WORKER}, frozenset({"*"})),
    "operator": ("operations", {Role.OPERATOR}, frozenset[str]()),
}


@dataclass
class Ground:
    """Everything of one test.

    Attributes:
        folder: Keys, principals, the store, what every process says, and the effects.
        server: The process that serves now.
    """

    nursery: Nursery
    folder: Path
    port: int
    server: Life
    kept: Kept
    lease_ms: int = LEASE_MS
    clients: dict[str, Client] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def effects(self) -> Path:
        return self.folder / "effects.txt"

    @property
    def alice(self) -> Client:
        return self.clients["alice"]

    async def serve(self, **options: Any) -> Life:
        """Begins a server on the same store and the same port, and waits until it serves."""
        self.server = await begin_server(
            self.nursery, self.folder, self.port, self.kept, lease_ms=self.lease_ms, **options
        )
        await self.server.says("is serving")
        return self.server

    async def serve_unhurried(self) -> None:
        """Goes on with a server whose leases are long, after what a short one was needed for."""
        await self.server.kill()
        self.lease_ms = LEASE_MS
        await self.serve()

    async def pass_lease(self) -> None:
        """Lets a lease's length go by for the server, so that nobody holds anything after it."""
        if self.kept.pass_ms is not None:
            await asyncio.to_thread(self.kept.pass_ms, self.lease_ms)
            return
        said = len(self.server.lines)
        self.server.signal(TIME_PASSES)
        await self.server.says("lets time pass", after=said)

    async def create(self, task_id: str, *, driver: str = "work", attempts: int = 100) -> Task:
        new = NewTask(task_id, Driver(driver, 1), input={"n": 1}, budget=Budget(attempts, 100, 100))
        return (await self.alice.tasks.create(new))[0]

    async def task(self, task_id: str) -> Task:
        return await self.alice.tasks.get(task_id, View.OWNER)

    async def work(self, *steps: str, driver: str = "work", **options: Any) -> Life:
        number = next(self.numbers)
        return await self.nursery.begin(
            self.folder,
            "worker",
            "work",
            driver=f"{driver}@1",
            worker=f"worker-{number}",
            steps=steps or ("reserve", "plain", "checkpoint", "gated", "event"),
            **{**self._known("worker"), **options},
        )

    async def recover(self, task_id: str, **options: Any) -> Life:
        number = next(self.numbers)
        known = self._known("operator")
        worker = f"recovery-{number}"
        return await self.nursery.begin(
            self.folder, "recovery", "recover", task=task_id, worker=worker, **known, **options
        )

    async def approve(self, task_id: str, *, approved: bool = True) -> None:
        async for approval in self.clients["bob"].approvals.pending():
            if approval.task_id == task_id:
                await self.clients["bob"].approvals.decide(approval, approved=approved)

    async def until(self, task_id: str, *conditions: Condition, seconds: float = 20) -> Task:
        """Waits for one of these conditions, or for the end of the task."""

        async def met() -> Task | None:
            try:
                task = await self.task(task_id)
            except DurableError:
                # Between two servers.
                return None
            ended = task.state in {"completed", "failed", "canceled", "stopped"}
            return task if ended or task.conditions & set(conditions) else None

        return await eventually(met, seconds, lambda: f"{conditions} of {task_id}")

    async def until_free(self, task_id: str) -> Task:
        """Waits until nobody holds it."""

        async def free() -> Task | None:
            task = await self.task(task_id)
            return None if Condition.LEASED in task.conditions else task

        return await eventually(free, 20, f"nobody to hold {task_id}")

    async def journal(self, task_id: str) -> list[tuple[int, str]]:
        return [
            (event.sequence, event.type)  # type: ignore[union-attr]
            async for event in self.alice.records.follow(task_id, follow=False)
        ]

    async def actions(self, task_id: str) -> dict[str, Action]:
        request = ListActionsRequest(task_id=task_id, page_size=100)
        page = await self.clients["operator"].calls.call(LIST_ACTIONS, request)
        return {action.id: action for action in map(action_of, page.actions)}

    def sent(self, task_id: str) -> list[str]:
        """The effects of a task that the outside world has seen, by action."""
        return [line.split()[1] for line in effects_in(self.effects) if line.split()[0] == task_id]

    def _known(self, principal: str) -> dict[str, str]:
        return {
            "address": self.address,
            "principal": principal,
            "key": str(self.folder / f"{principal}.json"),
            "effects": str(self.effects),
        }


async def insist(call: Callable[[], Awaitable[Result]]) -> Result:
    """The answer of the next server, when this one has died over the question."""
    while True:
        with contextlib.suppress(DurableError):
            return await call()


async def begin_server(
    nursery: Nursery, folder: Path, port: int, kept: Kept, *, lease_ms: int, **options: Any
) -> Life:
    argv: Sequence[str] = [
        "--dev",
        *("--listen", f"127.0.0.1:{port}"),
        *("--store", kept.setting),
        *("--principals", str(folder / "principals.json")),
        *("--lease", f"{lease_ms}ms"),
        *("--log-format", "json"),
    ]
    return await nursery.begin(folder, "server", "serve", argv=argv, lease_ms=lease_ms, **options)


def write_principals(folder: Path) -> dict[str, PrincipalKey]:
    """The keys of everybody, which are in files as well, beside what the service knows of them."""
    found, keys = [], {}
    for name, (actor, roles, drivers) in ROLES.items():
        key = keys[name] = PrincipalKey.generate()
        key.save(folder / f"{name}.json")
        public = bytes(key.signer.public_key)
        found.append(Principal(name, "tenant", actor, frozenset(roles), public, drivers=drivers))
    (folder / "principals.json").write_bytes(format_principals(Principals.of(found)))
    return keys


@contextlib.asynccontextmanager
async def service(
    nursery: Nursery, folder: Path, kept: Kept | None = None, *, lease_ms: int = LEASE_MS, **options: Any
) -> AsyncIterator[Ground]:
    """A service that serves, ended with all that was begun around it; its tasks are in a file by default."""
    kept = kept or file_in(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    clients = {
        name: Client(f"127.0.0.1:{port}", principal_id=name, key=key)
        for name, key in write_principals(folder).items()
    }
    server = await begin_server(nursery, folder, port, kept, lease_ms=lease_ms, **options)
    ground = Ground(nursery, folder, port, server, kept, lease_ms, clients)
    try:
        await server.says("is serving")
        yield ground
    finally:
        for client in clients.values():
            await client.close()
        await nursery.close()
