"""The primary of a PostgreSQL pair is lost, or demoted, under services that stay: the standby takes over."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from durable_service.client import Driver, NewTask
from sealwork.durable.v1 import worker_service_pb2
from tests.durable_service.crash.kept import Kept
from tests.durable_service.crash.nursery import Nursery
from tests.durable_service.durable_fixture import MAIL, creation, durable_process
from tests.durable_service.raw_client import WorkerStream
from tests.durable_service.replicas.absence import LEASE_MS, answered, claimed, refused
from tests.durable_service.replicas.background import Background
from tests.durable_service.replicas.crew import insist
from tests.durable_service.replicas.fleet import Fleet, fleet_on
from tests.durable_service.replicas.watchers import read_journal
from tests.durable_service.store.postgres_fixture import require_postgres
from tests.durable_service.store.postgres_standby import Pair, pair_of_servers
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

# No look at the changes is due within these tests: what is heard came by a message.
HEARING = {"look_seconds": 3_600.0}


@pytest.fixture
def pair() -> Iterator[Pair]:
    require_postgres()
    with pair_of_servers() as pair:
        yield pair


@pytest.fixture
async def fleet(pair: Pair, cradle: Nursery, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Two services that know both servers."""
    kept = Kept("postgresql", pair.url)
    async with fleet_on(kept, tmp_path, cradle, 2, lease_ms=LEASE_MS, options=[HEARING, HEARING]) as fleet:
        yield fleet


class Submitter:
    """Creates one task after the other at one service, and watches for them at the other."""

    def __init__(self, fleet: Fleet) -> None:
        first, second = (replica.address for replica in fleet.replicas)
        self._alice, self._watcher = fleet.client("alice", first), fleet.client("alice", second)
        self.confirmed: list[str] = []
        self._seen: set[str] = set()

    async def submit(self) -> None:
        while True:
            name = f"more-{len(self.confirmed)}"
            new = NewTask(name, Driver("work", 1))
            await insist(lambda new=new: self._alice.tasks.create(new))  # type: ignore[misc]
            self.confirmed.append(name)

    async def watch(self) -> None:
        async for task in self._watcher.tasks.watch():
            self._seen.add(task.id)

    async def confirms(self, more: int) -> None:
        count = len(self.confirmed) + more
        await eventually(lambda: len(self.confirmed) >= count, 60, f"{count} confirmed tasks")

    async def tells(self, names: list[str]) -> None:
        await eventually(
            lambda: self._seen >= set(names), 30, lambda: f"{set(names) - self._seen} to be told"
        )


async def offered(fleet: Fleet, stream: WorkerStream) -> None:
    """What is created at one service is offered at the other, the second time by a message for sure."""
    for name in ("offered", "offered-again"):
        await answered(lambda name=name: fleet.party("alice", 0).call("CreateTask", creation(name)))  # type: ignore[misc]
        assert (await stream.next("tasks_available")).driver == MAIL


async def outlast(fleet: Fleet, lose: Callable[[], None], promote: Callable[[], None]) -> None:
    """What holds when another server takes over, however the first one is lost."""
    alice, worker = fleet.party("alice", 0), fleet.party("worker", 0)
    await alice.call("CreateTask", creation())
    lease = await claimed(worker)
    stream = fleet.party("worker", 1).open()
    await stream.connect(drivers=[MAIL], inventory={"leases": [lease]})
    submitter, background = Submitter(fleet), Background()
    try:
        watching = background.run(submitter.watch())
        submitting = background.run(submitter.submit())
        journal = background.run(read_journal(fleet.client("alice", fleet.replicas[1].address), "task"))
        await submitter.confirms(10)
        await submitter.tells(submitter.confirmed[-1:])
        first = len(submitter.confirmed)
        await submitter.confirms(10)
        await asyncio.to_thread(lose)
        for replica in range(2):
            await refused(fleet.party("alice", replica))
        await asyncio.to_thread(promote)
        await submitter.confirms(10)
        submitting.cancel()
        # Whatever was confirmed is there, and whoever watched at the other service was told of it.
        for name in submitter.confirmed:
            task = await insist(lambda name=name: fleet.client("alice").tasks.get(name))  # type: ignore[misc]
            assert task.id == name
        await submitter.tells(submitter.confirmed[first:])
        await offered(fleet, stream)
        # The stream stayed, and so did the lease.
        await stream.send(renew=worker_service_pb2.RenewTasks(renewal_id=7, leases=[lease]))
        while (renewed := await stream.next("verdicts")).renewal_id != 7:
            assert not renewed.verdicts
        assert not renewed.verdicts
        await worker.call("CompleteTask", lease=lease)
        assert await asyncio.wait_for(journal, 30) == [1, 2, 3, 4]
        background.raise_failures()
        assert not watching.done()
    finally:
        await background.close()
        await stream.close()


@pytest.mark.guarantee(
    "postgresql", "A primary that is killed: services go on with the promoted standby, and nothing is lost"
)
async def test_a_primary_that_is_killed(fleet: Fleet, pair: Pair) -> None:
    await outlast(fleet, pair.primary.kill, pair.standby.promote)


@pytest.mark.guarantee(
    "postgresql", "A primary that hangs: services go on with the promoted standby, and nothing is lost"
)
async def test_a_primary_that_hangs(fleet: Fleet, pair: Pair) -> None:
    await outlast(fleet, pair.primary.pause, pair.standby.promote)


@pytest.mark.guarantee(
    "postgresql", "A primary that turns read-only: services leave it for the promoted standby"
)
async def test_a_primary_that_is_demoted(fleet: Fleet, pair: Pair) -> None:
    await outlast(fleet, pair.demote, pair.standby.promote)
    # Connections for artifacts, which nobody has used, are looked at when somebody does.
    await pair.all_leave(pair.primary, "durable-service")


async def test_a_standby_alone(pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="the output ended") as raised:
        async with durable_process(tmp_path, store=pair.url_of(pair.standby)):
            pass
    notes = "\n".join(raised.value.__notes__)
    assert "(exit status 2)" in notes
    (said,) = [line.removeprefix("  | ") for line in notes.splitlines() if line.startswith("  | ")]
    assert said == (
        f"Error: --store postgresql://service:***@127.0.0.1:{pair.standby.port}/tasks: "
        "the database takes no writes at present: it is a standby, or set read-only; "
        "name its primary, or all its servers as HOST1,HOST2, or promote it"
    )
