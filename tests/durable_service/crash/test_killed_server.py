"""The server is killed between a commit and its answer; its worker lives on, and nothing happens twice."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from durable_service.client import ActionState, Condition, TaskState

from .ground import Ground, insist, service
from .kept import KINDS, Kept
from .nursery import Nursery

pytestmark = pytest.mark.process
everywhere = pytest.mark.parametrize("kept", KINDS, indirect=True)


@pytest.mark.guarantee(
    "{kept}",
    "A service killed before or after a commit, and before its answer: its worker goes on with the next",
)
@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("commit:task.created", 1),
        ("commit:budget.reserved", 1),
        ("commit:action.prepared", 1),
        ("commit:action.executing", 1),
        ("commit:action.confirmed", 1),
        ("commit:half.done", 1),
        ("commit:task.state", 2),
        # Not written yet: the next server knows nothing of what was asked.
        *[("commit:before", number) for number in (1, 2, 4, 6)],
    ],
)
@everywhere
async def test_one_worker_over_two_servers(
    cradle: Nursery, tmp_path: Path, kept: Kept, point: str, left: int
) -> None:
    async with service(cradle, tmp_path, kept, fuse=(point, left)) as ground:
        first = ground.server
        worker = await ground.work("reserve", "plain", "event")
        creating = insist(partial(ground.create, "a"))
        if "created" in point or (point, left) == ("commit:before", 1):
            # The submitter asks again by itself.
            await asyncio.gather(creating, _next_server(ground))
        else:
            await creating
            await _next_server(ground)
        assert first.status == -9
        assert first.lines[-1] == f"dies {point}"
        assert await worker.end() == 0, worker.lines
        # Also when its completion was not answered, and its new stream said that the task had ended.
        assert "ended completed None" in worker.lines
        task = await ground.until("a")
        assert (task.state, ground.sent("a")) == (TaskState.COMPLETED, ["plain"])
        assert task.usage is not None
        assert (task.usage.attempts, task.usage.reserved_tokens) == (1, 3)
        journal = await ground.journal("a")
        assert journal == [
            (1, "task.created"),
            (2, "task.state"),
            (3, "lease.granted"),
            (4, "budget.reserved"),
            (5, "action.prepared"),
            (6, "action.executing"),
            (7, "action.confirmed"),
            (8, "half.done"),
            (9, "task.state"),
        ]


@pytest.mark.guarantee("{kept}", "A claim whose answer died with the service is granted once")
@everywhere
async def test_a_claim_that_was_not_answered(cradle: Nursery, tmp_path: Path, kept: Kept) -> None:
    fuse = ("commit:lease.granted", 1)
    async with service(cradle, tmp_path, kept, fuse=fuse) as ground:
        worker = await ground.work("reserve", "plain")
        await asyncio.gather(insist(partial(ground.create, "a")), _next_server(ground))
        assert await worker.end() == 0, worker.lines
        task = await ground.until("a")
        assert (task.state, ground.sent("a")) == (TaskState.COMPLETED, ["plain"])
        assert task.usage is not None
        # Its repeat is granted the same lease, and the new stream waits for that.
        assert task.usage.attempts == 1
        assert "lease.released" not in [kind for _, kind in await ground.journal("a")]


async def _next_server(ground: Ground) -> None:
    await ground.server.end()
    await ground.serve()


@pytest.mark.guarantee("{kept}", "A suspension and a decision outlive the services that took them")
@everywhere
async def test_a_suspension_and_a_decision_outlive_servers(
    cradle: Nursery, tmp_path: Path, kept: Kept
) -> None:
    async with service(cradle, tmp_path, kept, fuse=("commit:approval.requested", 1)) as ground:
        await ground.create("a")
        worker = await ground.work("gated")
        await ground.server.end()
        await ground.serve(fuse=("commit:approval.decided", 1))
        await ground.until("a", Condition.APPROVAL_PENDING)
        await asyncio.gather(insist(partial(ground.approve, "a")), _next_server(ground))
        while (await ground.until("a", Condition.CLAIMABLE)).state is not TaskState.COMPLETED:
            worker = await ground.work("gated")
            assert await worker.end() == 0, worker.lines
        assert ground.sent("a") == ["gated"]
        journal = [kind for _, kind in await ground.journal("a")]
        assert journal.count("approval.requested") == journal.count("approval.decided") == 1


@pytest.mark.guarantee("{kept}", "The evidence of a look-up outlives the service that took it")
@everywhere
async def test_an_evidence_outlives_the_server_that_took_it(
    cradle: Nursery, tmp_path: Path, kept: Kept
) -> None:
    async with service(cradle, tmp_path, kept, fuse=("commit:action.confirmed", 1)) as ground:
        await ground.create("a")
        await (await ground.work(fuse=("effect:after", 1))).end()
        await ground.pass_lease()
        await ground.until("a", Condition.RECOVERY_REQUIRED)
        await ground.recover("a")
        await ground.server.end()
        await ground.serve()
        assert (await ground.actions("a"))["plain"].state is ActionState.CONFIRMED
        worker = await ground.work("plain")
        assert await worker.end() == 0, worker.lines
        assert (await ground.until("a")).state is TaskState.COMPLETED
        assert ground.sent("a") == ["plain"]
