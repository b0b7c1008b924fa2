"""Both services on this machine, a device with a model that counts, and workers that are killed."""

import asyncio
import contextlib
import hashlib
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from durable_service.client import Budget, Client, Driver, NewTask, PrincipalKey, Task, TaskState, View
from durable_service.principals import Principal, Principals, Role
from durable_service.principals_file import format_principals
from relay_connector import Answer, artifact_id_of
from relay_connector.question import job_id_of
from relay_service.client import JobResult, Keys, RelayError, Site
from tests.harness.processes import RunningProcess, running
from tests.harness.waiting import eventually
from tests.relay_connector.crash.asking_worker import DRIVER
from tests.relay_service.client.commands import DAEMON, ENVIRONMENT, ROOT, identity_file, key_file
from tests.relay_service.relay_fixture import READY
from tests.relay_service.replicas.relay_processes import relay_command, write_projection
from tests.relay_service.store.valkey_fixture import free_port

MODEL = Path(__file__).with_name("counting_model.py")
# A clock that is so far ahead is past every deadline, whatever clocks may differ and tests have leapt.
HOURS_MS = 36_000_000
SERVING = r'"event":"durable service is serving"'
ROLES = {"alice": {Role.SUBMITTER, Role.OPERATOR}, "worker": {Role.WORKER}}


def keys_for(name: str) -> Keys:
    """The keys by which the projection of the relay's tests knows a party, as they can be kept in a file."""
    seed = hashlib.sha512(name.encode()).digest()
    return Keys(seed[:32], seed[32:], 1)


@dataclass
class PairGround:
    """Everything of one test.

    Attributes:
        store: Where the relay keeps its jobs.
        lease: How long a device holds one.
    """

    folder: Path
    ends: contextlib.AsyncExitStack
    store: str
    lease: str
    relay_port: int = field(default_factory=free_port)
    durable_port: int = field(default_factory=free_port)
    processes: dict[str, RunningProcess] = field(default_factory=dict)
    clients: dict[str, Client] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def relay_address(self) -> str:
        return f"127.0.0.1:{self.relay_port}"

    @property
    def book(self) -> Path:
        return self.folder / "book.txt"

    @property
    def gates(self) -> Path:
        return self.folder / "gates"

    # -- processes ----------------------------------------------------------------------

    async def serve_relay(self) -> RunningProcess:
        argv = relay_command(self.store, self.folder / "projection.json", "--listen", self.relay_address)
        return await self._begin("relay", [*argv, "--lease", self.lease], ready=READY, ready_timeout=40)

    async def serve_durable(self) -> RunningProcess:
        argv = [sys.executable, "-m", "tests.relay_connector.crash.leaping_service", "--dev"]
        argv += ["--listen", f"127.0.0.1:{self.durable_port}", "--log-format", "json"]
        argv += ["--store", f"sqlite:///{self.folder / 'tasks.db'}"]
        argv += ["--principals", str(self.folder / "principals.json")]
        return await self._begin("durable", argv, ready=SERVING)

    async def serve_device(self, name: str = "runner-1") -> RunningProcess:
        folder = self.folder / name
        if not folder.exists():
            folder.mkdir()
            key_file(folder, keys_for(name))
        argv = [sys.executable, "-c", DAEMON, "run", "--relay", self.relay_address, "--runner-id", name]
        argv += ["--keys", str(folder / "keys.json"), "--owner", "alice", "--slots", "4"]
        argv += ["--site-pin", identity_file(folder, keys_for("demo"), "site.json"), "--no-prompt-log"]
        argv += ["--grace", "0", "--backend", "command", "--", sys.executable, "-S", str(MODEL)]
        return await self._begin(name, [*argv, str(self.book), str(self.gates)])

    async def work(self, *, fuse: str = "", left: int = 0, **options: Any) -> RunningProcess:
        """Begins a worker; with a fuse it dies at that point, the `left`-th time that it comes by."""
        argv = [sys.executable, "-m", "tests.relay_connector.crash.asking_worker"]
        argv += ["--address", f"127.0.0.1:{self.durable_port}", "--relay", self.relay_address]
        argv += ["--key", str(self.folder / "worker.json"), "--site-keys", str(self.folder / "demo.json")]
        argv += ["--fuse", f"{fuse}#{left or (1 if fuse else 0)}"]
        for name, value in options.items():
            flag = f"--{name.replace('_', '-')}"
            argv += [flag] if value is True else [flag, str(value)]
        return await self._begin(f"worker-{next(self.numbers)}", argv)

    async def dismiss_workers(self) -> None:
        """Ends all workers, so that the next test has its tasks for itself."""
        workers = [each for each in self.processes if each.startswith("worker-")]
        for name in workers:
            await self.processes.pop(name).close()

    async def kill(self, name: str) -> None:
        self.processes[name].kill()
        await self.processes[name].wait()

    def next_task(self) -> str:
        """A name that no other task has."""
        return f"task-{next(self.numbers)}"

    async def pass_lease(self) -> None:
        """Lets a lease's length go by for the durable service, so that nobody holds anything after it."""
        durable = self.processes["durable"]
        said = len(durable.lines)
        os.kill(durable.pid, signal.SIGUSR1)
        await durable.wait_line("lets time pass", after=said)

    # -- tasks --------------------------------------------------------------------------

    async def create(self, task_id: str) -> Task:
        new = NewTask(task_id, Driver(DRIVER, 1), budget=Budget(100, 100, 100))
        return (await self.clients["alice"].tasks.create(new))[0]

    async def task(self, task_id: str) -> Task:
        return await self.clients["alice"].tasks.get(task_id, View.OWNER)

    async def ended(self, task_id: str, seconds: float = 60) -> Task:
        async def over() -> Task | None:
            task = await self.task(task_id)
            return task if task.ended else None

        return await eventually(over, seconds, f"the end of {task_id}")

    async def action(self, task_id: str) -> Any:
        async for action in self.clients["alice"].tasks.actions(task_id):
            return action
        return None

    async def answer(self, task_id: str) -> Answer:
        """The one answer that is kept beside a task that has completed."""
        task = await self.ended(task_id)
        assert task.state is TaskState.COMPLETED, task.failure
        kept = [each.id for each in task.artifacts if each.id.startswith("answer-")]
        assert task.result_ref is not None
        assert kept == [artifact_id_of(task.result_ref)]
        (artifact_id,) = kept
        return Answer.from_bytes(await self.clients["alice"].records.artifact(task_id, artifact_id))

    # -- the model and the relay --------------------------------------------------------

    def let_go(self, *task_ids: str) -> None:
        """Lets the model finish."""
        for task_id in task_ids:
            (self.gates / task_id).touch()

    def counted(self, task_id: str) -> tuple[int, int]:
        """How often the model has begun with a prompt, and how often it was done with it."""
        lines = self.book.read_text().splitlines() if self.book.exists() else []
        return lines.count(f"begun {task_id}"), lines.count(f"done {task_id}")

    async def until_counted(self, task_id: str, begun: int, done: int) -> None:
        await eventually(
            lambda: self.counted(task_id) == (begun, done), 60, lambda: f"{self.counted(task_id)}"
        )

    async def result_at_relay(self, task_id: str) -> JobResult | str:
        """What the relay has of a task's job: its result, or why there is none."""
        action = await self.action(task_id)
        if action is None:
            return "NOT_ASKED"
        job_id = job_id_of(action)
        site = Site(self.relay_address, site_id="demo", keys=keys_for("demo"), streams=False)
        async with site:
            try:
                return await site.read_result(job_id)
            except RelayError as error:
                return error.reason

    async def until_result_at_relay(self, task_id: str) -> None:
        async def there() -> bool:
            return isinstance(await self.result_at_relay(task_id), JobResult)

        await eventually(there, 30, f"the result of {task_id} at the relay")

    async def until_forgotten(self, task_id: str) -> None:
        async def forgotten() -> bool:
            return await self.result_at_relay(task_id) == "JOB_NOT_FOUND"

        await eventually(forgotten, 90, f"the relay to forget {task_id}")

    async def until_published(self, task_id: str) -> None:
        async def published() -> bool:
            return await self.result_at_relay(task_id) == "RESULT_NOT_READY"

        await eventually(published, 30, f"the job of {task_id} at the relay")

    async def _begin(self, name: str, argv: list[str], **options: Any) -> RunningProcess:
        environment = {**ENVIRONMENT, "GRPC_VERBOSITY": "NONE"}
        begun = running(argv, env=environment, cwd=ROOT, **options)
        self.processes[name] = await self.ends.enter_async_context(begun)
        return self.processes[name]


@contextlib.asynccontextmanager
async def pair(folder: Path, *, store: str = "memory:", lease: str = "60s") -> AsyncIterator[PairGround]:
    """Both services and a device of alice, ended with everything that was begun around them."""
    await asyncio.to_thread(write_projection, folder)
    (folder / "gates").mkdir()
    key_file(folder, keys_for("demo"), "demo.json")
    async with contextlib.AsyncExitStack() as ends:
        ground = PairGround(folder, ends, store, lease)
        known = []
        for name, roles in ROLES.items():
            key = PrincipalKey.generate()
            key.save(folder / f"{name}.json")
            public = bytes(key.signer.public_key)
            drivers = frozenset({"*"}) if name == "worker" else frozenset[str]()
            known.append(Principal(name, "tenant", name, frozenset(roles), public, drivers=drivers))
            ground.clients[name] = await ends.enter_async_context(
                Client(f"127.0.0.1:{ground.durable_port}", principal_id=name, key=key)
            )
        (folder / "principals.json").write_bytes(format_principals(Principals.of(known)))
        await asyncio.gather(ground.serve_relay(), ground.serve_durable())
        await ground.serve_device()
        yield ground
