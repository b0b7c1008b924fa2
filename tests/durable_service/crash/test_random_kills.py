"""Kills at random steps of workers, reconcilers and servers; what was done once stays done once.

The seed is fixed: each life is told beforehand at which of its steps it will be killed. Databases that are
processes are killed as well. CRASH_KILLS=1000 makes a long run of it.
"""

import asyncio
import os
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import pytest

from durable_service.client import ActionState, Condition, Task, TaskState
from tests.harness.waiting import eventually

from .effects import effects_in
from .ground import Ground, insist, service
from .kept import KINDS, Kept
from .nursery import Life, Nursery

KILLS = {"sqlite": 200, "postgresql": 40, "mongodb": 40}
MORE_KILLS = int(os.environ.get("CRASH_KILLS", "0"))
# A kill takes a second or two where the database takes its time.
SECONDS = 200 + 6 * MORE_KILLS
pytestmark = [pytest.mark.process, pytest.mark.timeout(SECONDS + 40)]
DATABASE_KILLS = 3
LANES = {"sqlite": 8, "postgresql": 8, "mongodb": 3}
SEED = 20_261_130
# How many points a life comes by at most when it is not killed.
WORKER_POINTS = 20
RECOVERY_POINTS = 12
SERVER_COMMITS = (60, 240)
# Lost now and then without a kill, which is welcome here, as long as a write takes far less than one of them.
SHORT_LEASES_MS = {"sqlite": 400, "postgresql": 400, "mongodb": 3_000}


@dataclass
class Chaos:
    """Lanes of tasks, each with one worker at a time: only so is a dead sender known to be dead.

    Attributes:
        acknowledged: By task and action, the result that a worker was told is written down.
    """

    ground: Ground
    random: Random
    most: int
    kills: Counter[str] = field(default_factory=Counter)
    database_kills: int = 0
    database_is_there: asyncio.Lock = field(default_factory=asyncio.Lock)
    points: set[str] = field(default_factory=set)
    tasks: list[str] = field(default_factory=list)
    acknowledged: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        return self.kills.total() >= self.most

    def fuse(self, most: int) -> tuple[str, int]:
        return "", 0 if self.over else self.random.randint(1, most)

    async def keep_serving(self) -> None:
        while True:
            await self._count("server", self.ground.server)
            async with self.database_is_there:
                await self.ground.serve(fuse=("", self.random.randint(*SERVER_COMMITS)))

    async def kill_databases(self) -> None:
        """At even distances; no service begins in between, which would find no database and say so."""
        kill = self.ground.kept.kill
        for number in range(1, DATABASE_KILLS + 1 if kill else 1):
            goal = self.most * number // (DATABASE_KILLS + 1)
            await eventually(lambda goal=goal: self.kills.total() >= goal, SECONDS, f"{goal} kills")  # type: ignore[misc]
            async with self.database_is_there:
                assert kill is not None
                await asyncio.to_thread(kill)
            self.database_kills += 1

    async def lane(self, number: int) -> None:
        while not self.over:
            task_id = f"task-{number}-{len(self.tasks)}"
            self.tasks.append(task_id)
            await insist(partial(self.ground.create, task_id, driver=f"lane-{number}"))
            while True:
                task = await insist(partial(self.ground.until_free, task_id))
                if task.state is TaskState.COMPLETED:
                    break
                await self._advance(task, f"lane-{number}")

    async def _advance(self, task: Task, driver: str) -> None:
        if Condition.RECOVERY_REQUIRED in task.conditions:
            life = await self.ground.recover(task.id, fuse=self.fuse(RECOVERY_POINTS))
            await self._count("recovery", life)
        elif Condition.CLAIMABLE in task.conditions:
            life = await self.ground.work(driver=driver, fuse=self.fuse(WORKER_POINTS))
            await self._count("worker", life)
            said = [line.split() for line in life.lines if line.startswith("confirmed ")]
            self.acknowledged |= {(task.id, words[1]): words[2] for words in said}
        elif Condition.APPROVAL_PENDING in task.conditions:
            await insist(lambda: self.ground.approve(task.id))
        else:
            # Stuck without a stated condition, unless it has just been freed.
            assert task.state in {TaskState.RUNNING, TaskState.QUEUED, TaskState.AWAITING_APPROVAL}, task

    async def _count(self, what: str, life: Life) -> None:
        status = await life.end(150)
        if status == -9:
            self.kills[what] += 1
            self.points.add(f"{what} {life.lines[-1].partition(' ')[2]}")
        # A reconciler that meets no server gives up, and another one is sent.
        assert status in {-9, 0} or what == "recovery", "\n".join(life.lines[-60:])


async def check(chaos: Chaos) -> None:
    ground = chaos.ground
    effects = effects_in(ground.effects)
    keys = [line.split()[2] for line in effects]
    assert len(set(keys)) == len(keys), "an effect was repeated"
    happened = {(task_id, action_id) for task_id, action_id, _ in map(str.split, effects)}
    for task_id in chaos.tasks:
        task = await ground.task(task_id)
        assert (task.state, task.result_ref) == (TaskState.COMPLETED, "result:task")
        assert task.usage is not None
        assert task.usage.reserved_tokens == 3
        actions = await ground.actions(task_id)
        assert {name: action.state for name, action in actions.items()} in (
            {"plain": ActionState.CONFIRMED, "gated": ActionState.CONFIRMED},
            # An approval was used up by an intent that came to nothing.
            {"plain": ActionState.CONFIRMED, "gated": ActionState.REJECTED},
        )
        for action in actions.values():
            assert ((task_id, action.id) in happened) is (action.state is ActionState.CONFIRMED)
            told = chaos.acknowledged.get((task_id, action.id))
            assert told in {None, action.result_ref}
        journal = await ground.journal(task_id)
        assert [sequence for sequence, _ in journal] == list(range(1, len(journal) + 1))
        assert [kind for _, kind in journal].count("half.done") == 1
        assert await ground.alice.records.snapshot(task_id, "half") == {"step": 1}


@pytest.mark.guarantee(
    "{kept}", "Random kills at every kind of step: no effect repeated, no result lost, no task stuck"
)
@pytest.mark.parametrize("kept", KINDS, indirect=True)
async def test_random_kills(cradle: Nursery, tmp_path: Path, kept: Kept) -> None:
    random = Random(SEED)
    first = ("", random.randint(*SERVER_COMMITS))
    kills = MORE_KILLS or KILLS[kept.kind]
    lease_ms = SHORT_LEASES_MS[kept.kind]
    async with service(cradle, tmp_path, kept, lease_ms=lease_ms, fuse=first) as ground:
        chaos = Chaos(ground, random, kills)
        serving = asyncio.create_task(chaos.keep_serving())
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(chaos.kill_databases())
            for number in range(LANES[kept.kind]):
                lanes.create_task(chaos.lane(number))
        await insist(partial(check, chaos))
        serving.cancel()
        assert chaos.kills.total() >= kills
        assert chaos.kills["worker"] >= kills // 2
        assert chaos.kills["server"] >= kills // 40
        assert len(chaos.points) >= min(25, kills // 4)
        assert chaos.database_kills == (DATABASE_KILLS if kept.kill else 0)
