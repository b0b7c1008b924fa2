"""The commands that call a service, as a person types them, on a real service."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from durable_service.client import ActionInput, ApprovalNeed, Client, TaskContext, Worker
from service_common.clocks import SystemClock
from tests.durable_service.client.real_service import key_of
from tests.durable_service.client.test_worker_actions import Post
from tests.durable_service.durable_fixture import REPOSITORY, durable_process
from tests.harness.processes import running

pytestmark = [pytest.mark.process, pytest.mark.timeout(240)]

SEARCH = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'protos/gen/python'}"}
SEND = ActionInput("send", "inbox", {"text": "hello [b]bob[/b]"})


@dataclass
class Ended:
    status: int
    stdout: str
    stderr: str


@dataclass
class Terminal:
    """A folder with the keys of some principals, and a service."""

    folder: Path
    address: str

    async def __call__(self, *words: str, who: str = "alice", **environment: str) -> Ended:
        """Types a command of durable-service."""
        argv = [sys.executable, "-m", "durable_service", *words]
        surroundings = SEARCH | {
            "DURABLE_ADDRESS": self.address,
            "DURABLE_PRINCIPAL": who,
            "DURABLE_KEY": f"{who}.key",
            "COLUMNS": "200",
            "TZ": "UTC",
        }
        async with running(argv, env=surroundings | environment, cwd=self.folder) as command:
            status = await command.wait()
            return Ended(status, "\n".join(command.stdout), "\n".join(command.stderr))

    async def json(self, *words: str, who: str = "alice") -> Any:
        ended = await self(*words, "--json", who=who)
        assert ended.status == 0, ended
        return json.loads(ended.stdout)


@asynccontextmanager
async def terminal(folder: Path) -> AsyncIterator[Terminal]:
    for name in ("alice", "carol", "operator", "worker"):
        key_of(name).save(folder / f"{name}.key")
    async with durable_process(folder) as (_, address):
        yield Terminal(folder, address)


@asynccontextmanager
async def sending_worker(address: str, post: Post) -> AsyncIterator[None]:
    async def handler(context: TaskContext) -> str:
        need = ApprovalNeed("carol", SystemClock().now_ms() + 3_600_000)
        return await context.execute(replace(SEND, approval=need), post)

    async with Client(address, principal_id="worker", key=key_of("worker")) as client:
        worker = Worker(client, {"mail@1": handler})
        serving = asyncio.ensure_future(worker.run())
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def test_a_task_from_its_creation_to_its_end(tmp_path: Path) -> None:
    post = Post("mail:1")
    async with terminal(tmp_path) as type_, sending_worker(type_.address, post):
        words = ("tasks", "create", "t-1", "--driver", "mail@1", "--input", '{"to": "bob"}')
        created = await type_(*words)
        assert created == Ended(0, created.stdout, "")
        assert created.stdout.startswith("t-1: created, ")
        assert (await type_(*words)).stdout.startswith("t-1: was there already, ")
        waiting = await type_("tasks", "wait", "t-1", "--or-approval")
        assert (waiting.status, waiting.stdout) == (0, "t-1: awaiting_approval")

        (pending,) = await type_.json("approvals", "list", who="carol")
        assert (pending["task_id"], pending["action_id"], pending["state"]) == ("t-1", "send", "pending")
        shown = await type_("approvals", "show", pending["id"][:8], who="carol")
        # Not read as markup, and not hidden.
        assert '{"text":"hello [b]bob[/b]"}' in shown.stdout
        assert "inbox" in shown.stdout
        decided = await type_("approvals", "approve", pending["id"], "--yes", "--note", "fine", who="carol")
        assert decided.stdout in {f"{pending['id']}: approved", f"{pending['id']}: used"}

        ended = await type_("tasks", "wait", "t-1", "--timeout", "20s")
        assert (ended.status, ended.stdout) == (0, "t-1: completed, result mail:1")
        task = await type_.json("tasks", "get", "t-1")
        assert (task["state"], task["result_ref"], task["definition"]["input"]) == (
            "completed",
            "mail:1",
            {"to": "bob"},
        )
        followed = await type_("events", "t-1", "--follow", "--json")
        types = [json.loads(line)["type"] for line in followed.stdout.splitlines()]
        assert types[0] == "task.created"
        assert types.count("action.confirmed") == 1
        assert len(post.sent) == 1


async def test_lists_and_cancels_and_the_counts(tmp_path: Path) -> None:
    async with terminal(tmp_path) as type_:
        assert (await type_("tasks", "list")).stdout == "there are no such tasks"
        assert (await type_("approvals", "list", who="carol")).stdout == "nothing waits for this principal"
        for number in (1, 2):
            await type_("tasks", "create", f"t-{number}", "--driver", f"mail@{number}")
        canceled = await type_("tasks", "cancel", "t-1", "--reason", "not needed", "--wait")
        assert (canceled.status, canceled.stdout) == (0, "t-1: canceled")
        waited = await type_("tasks", "wait", "t-1")
        assert (waited.status, waited.stdout, waited.stderr) == (1, "t-1: canceled", "Error: not needed")
        listed = (await type_("tasks", "list")).stdout.strip().splitlines()
        assert listed[0].split() == ["task", "state", "driver", "created", "changed", "conditions"]
        assert [line.split()[:3] for line in listed[2:] if line.strip()] == [
            ["t-2", "queued", "mail@2"],
            ["t-1", "canceled", "mail@1"],
        ]
        assert [each["id"] for each in await type_.json("tasks", "list", "--state", "queued")] == ["t-2"]
        late = await type_("tasks", "wait", "t-2", "--timeout", "10ms")
        assert (late.status, late.stderr) == (1, "Error: t-2: still queued when the time was over")
        stats = await type_.json("top", who="operator")
        assert stats["tasks"] == {"queued": 1, "canceled": 1}
        assert (stats["durable"], stats["claimable_tasks"]) == (True, 1)
        screen = await type_("top", "--once", who="operator")
        assert "survives a restart" in screen.stdout


async def test_what_goes_wrong_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    async with terminal(tmp_path) as type_:
        for words, who, said in (
            (
                ("tasks", "get", "t-9"),
                "alice",
                "TASK_NOT_FOUND: ",
            ),
            (("tasks", "get", "t-9"), "nobody", "nobody.key: there is no key; make one with: "),
            (("top", "--once"), "alice", "ROLE_NOT_ALLOWED: "),
            (("approvals", "approve", "p-1", "--yes"), "carol", "p-1: no such approval waits for"),
        ):
            ended = await type_(*words, who=who)
            assert ended.status == 1, ended
            assert ended.stdout == ""
            (line,) = ended.stderr.splitlines()
            assert line.startswith("Error: " + said)
        unknown = await type_("tasks", "list", DURABLE_PRINCIPAL="mallory")
        assert 'the service does not know this key as that of "mallory"' in unknown.stderr


async def test_a_person_settles_what_nobody_knows(tmp_path: Path) -> None:
    post = Post(RuntimeError("reset by peer"))

    async def handler(context: TaskContext) -> str:
        return await context.execute(SEND, post)

    async with (
        terminal(tmp_path) as type_,
        Client(type_.address, principal_id="worker", key=key_of("worker")) as client,
        Worker(client, {}) as worker,
    ):
        await type_("tasks", "create", "t-1", "--driver", "mail@1")
        await worker.run_task("t-1", handler)
        (unknown,) = await type_.json("actions", "unknown", who="operator")
        assert (unknown["task"], unknown["action"], unknown["state"]) == ("t-1", "send", "unknown")
        settle = ("actions", "settle", "t-1")
        wrong = await type_(*settle, "other", "--evidence", "x", "--absent", who="operator")
        assert wrong.stderr == "Error: other: is no action of t-1 whose outcome is unknown"
        happened = (*settle, "send", "--evidence", "ticket:7", "--happened", "mail:9")
        settled = await type_(*happened, who="operator")
        assert (settled.status, settled.stdout) == (0, "send: confirmed")
        again = await type_(*happened, who="operator")
        assert (again.status, again.stderr) == (1, "Error: t-1: every outcome is known")
        (listed,) = await type_.json("actions", "list", "t-1")
        assert (listed["result_ref"], listed["evidence_ref"], listed["args"]) == (
            "mail:9",
            "ticket:7",
            {"text": "hello [b]bob[/b]"},
        )
        await worker.run_task("t-1", handler)
        assert (await type_("tasks", "wait", "t-1")).stdout == "t-1: completed, result mail:9"
        assert len(post.sent) == 1
