"""Services on one database that are killed at random under load, and the database with them."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import TypeAlias

import pytest

from tests.durable_service.crash.nursery import Nursery
from tests.durable_service.replicas.background import Background
from tests.durable_service.replicas.crew import Crew
from tests.durable_service.replicas.databases import KINDS, Database
from tests.durable_service.replicas.evidence import check_all
from tests.durable_service.replicas.fleet import Fleet, fleet_on
from tests.durable_service.replicas.watchers import Seen, read_journal, watch_restlessly, watch_steadily
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

# CHAOS_ROUNDS=20 makes a long run of it.
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "1"))
# Between two incidents; the server that stands for MongoDB makes fewer writes in a second.
ENDS_BETWEEN = {"postgresql": 12, "mongodb": 6}
LANES = {"postgresql": 6, "mongodb": 3}
WORKERS = 3
# Long enough for a busy machine, and short enough that what is lost with it comes back within a test.
LEASE_MS = 8_000
SEED = 20_261_130
Incident: TypeAlias = Callable[[], Awaitable[None]]


class Incidents:
    """What befalls the fleet, one after the other while work goes on."""

    def __init__(self, fleet: Fleet, database: Database, random: Random) -> None:
        self._fleet = fleet
        self._database = database
        self._random = random

    def round(self) -> list[Incident]:
        kills = [self.kill_a_replica, self.kill_a_replica, self.restart_a_replica]
        others = [self.restart_the_database, self.kill_the_database, self.kill_all_replicas]
        incidents: list[Incident] = [*kills, *others]
        self._random.shuffle(incidents)
        return incidents

    async def kill_a_replica(self) -> None:
        victim = self._random.choice(self._fleet.replicas)
        await victim.kill()
        await victim.start()

    async def restart_a_replica(self) -> None:
        victim = self._random.choice(self._fleet.replicas)
        await victim.terminate()
        await victim.start()

    async def kill_all_replicas(self) -> None:
        await asyncio.gather(*(replica.kill() for replica in self._fleet.replicas))
        for replica in self._fleet.replicas:
            await replica.start()

    async def restart_the_database(self) -> None:
        await asyncio.to_thread(self._database.stop)
        await asyncio.to_thread(self._database.start)

    async def kill_the_database(self) -> None:
        await asyncio.to_thread(self._database.kill)
        await asyncio.to_thread(self._database.start)


async def let_happen(crew: Crew, incidents: Incidents, ends_between: int) -> None:
    for _ in range(ROUNDS):
        for incident in incidents.round():
            goal = len(crew.ended) + ends_between
            await eventually(lambda goal=goal: len(crew.ended) >= goal, 90, f"{goal} tasks to end")  # type: ignore[misc]
            await incident()


@pytest.mark.guarantee(
    "{database}",
    "{size} services, killed at random, and the database with them: every task ends once, no effect repeats, "
    "no two leases overlap, no journal has a gap, every watcher sees every end",
)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("database", KINDS, indirect=True)
async def test_every_task_ends_exactly_once(
    database: Database, size: int, cradle: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Looked for every minute otherwise: nobody tells a worker of a task whose holder is gone for good.
    monkeypatch.setattr("durable_service.client.recoverer._SCAN_SECONDS", 2.0)
    random = Random(SEED + size)
    kept = database.kept()
    async with AsyncExitStack() as parties:
        fleet = await parties.enter_async_context(
            fleet_on(kept, tmp_path, cradle, size, random=random, lease_ms=LEASE_MS)
        )
        crew = Crew(fleet)
        seen = [Seen(), Seen()]
        journals: dict[str, asyncio.Task[list[int]]] = {}
        background = Background()
        parties.push_async_callback(background.close)
        on = background.run
        at_each = [fleet.client("alice", replica.address) for replica in fleet.replicas]
        on(watch_steadily(fleet.client("alice"), seen[0]))
        on(watch_restlessly(at_each, seen[1]))
        await crew.begin(lambda: all(each.ends for each in seen))
        on(crew.approve())
        workers = [crew.worker(number) for number in range(WORKERS)]
        for worker in workers:
            on(worker.run())
        reader = fleet.client("alice")
        lanes = [asyncio.create_task(crew.submit(lane)) for lane in range(LANES[kept.kind])]
        crew.on_created = lambda task_id: journals.update({task_id: on(read_journal(reader, task_id))})
        await let_happen(crew, Incidents(fleet, database, random), ENDS_BETWEEN[kept.kind])
        crew.enough.set()
        # None is stuck.
        async with asyncio.timeout(120):
            await asyncio.gather(*lanes)
            told = {task_id: await reading for task_id, reading in journals.items()}
        background.raise_failures()
        await check_all(crew)
        ends = {task_id: {state} for task_id, state in crew.ended.items() if "first" not in task_id}
        await eventually(lambda: all(set(each.ends) >= set(ends) for each in seen), 30, "every end seen")
        assert all({task_id: each.ends[task_id] for task_id in ends} == ends for each in seen)
        assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in told.values())
        assert set(told) == set(ends)
