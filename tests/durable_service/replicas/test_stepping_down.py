"""A MongoDB primary steps down, or says so, under services that stay; and one that has no change streams."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.durable_service.crash.kept import Kept
from tests.durable_service.crash.nursery import Nursery
from tests.durable_service.durable_fixture import MAIL, creation
from tests.durable_service.raw_client import Refusal, WorkerStream
from tests.durable_service.replicas.absence import LEASE_MS, answered, claimed, refused
from tests.durable_service.replicas.fleet import Fleet, fleet_on
from tests.durable_service.store.mongo_fixture import MISSING, MongoServer, fresh_database, require_mongo

if not MISSING:
    from pymongo import MongoClient
    from pymongo.errors import OperationFailure

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

# No look at the changes is due within these tests.
HEARING = {"look_seconds": 3_600.0}
SOON_SECONDS = 8
# Far longer than both services take to notice it, on a busy machine too.
DOWN_SECONDS = 15
# Nobody waits long for a primary. A server that only says that it is none does not push what it is: that is
# asked for twice a second.
IMPATIENT = "&serverSelectionTimeoutMS=3000&heartbeatFrequencyMS=500"
# What a service does with its tasks; the driver's own questions are answered.
WORK = ["find", "aggregate", "insert", "update", "findAndModify"]


@contextlib.contextmanager
def server_with(*options: str) -> Iterator[MongoServer]:
    require_mongo()
    with tempfile.TemporaryDirectory(prefix="mongo-") as folder:
        server = MongoServer(Path(folder), options, durable=False)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[MongoServer]:
    """One that lets tests tell it how to fail."""
    with server_with("--enable-test-commands") as server:
        yield server


@asynccontextmanager
async def two_on(server: MongoServer, cradle: Nursery, folder: Path) -> AsyncIterator[Fleet]:
    """Two services on a database that nobody has used."""
    kept = Kept("mongodb", fresh_database(server) + IMPATIENT)
    async with fleet_on(kept, folder, cradle, 2, lease_ms=LEASE_MS, options=[HEARING, HEARING]) as fleet:
        yield fleet


@pytest.fixture
async def fleet(server: MongoServer, cradle: Nursery, tmp_path: Path) -> AsyncIterator[Fleet]:
    async with two_on(server, cradle, tmp_path) as fleet:
        yield fleet


async def command(server: MongoServer, *words: Any, **details: Any) -> None:
    def ask() -> None:
        with MongoClient[dict[str, Any]](server.url, directConnection=True) as client:
            client.admin.command(*words, **details)

    await asyncio.to_thread(ask)


async def fail(server: MongoServer, mode: Any, **how: Any) -> None:
    await command(server, "configureFailPoint", "failCommand", mode=mode, data={"failCommands": WORK, **how})


async def both_refuse(fleet: Fleet) -> None:
    await asyncio.gather(*(refused(fleet.party("alice", replica)) for replica in range(2)))


async def offered(fleet: Fleet, stream: WorkerStream, *names: str) -> None:
    """What is created at one service is offered at the other."""
    for name in names:
        await answered(lambda name=name: fleet.party("alice", 0).call("CreateTask", creation(name)))  # type: ignore[misc]
        assert (await asyncio.wait_for(stream.next("tasks_available"), SOON_SECONDS)).driver == MAIL


@pytest.mark.guarantee(
    "mongodb", "A primary that steps down: calls are refused as such, and services go on when there is one"
)
async def test_a_primary_that_steps_down(fleet: Fleet, server: MongoServer) -> None:
    alice, worker = fleet.party("alice", 0), fleet.party("worker", 0)
    await alice.call("CreateTask", creation())
    lease = await claimed(worker)
    stream = fleet.party("worker", 1).open()
    await stream.connect(drivers=[MAIL], inventory={"leases": [lease]})
    await offered(fleet, stream, "before")
    await command(server, "replSetStepDown", DOWN_SECONDS, force=True)
    await both_refuse(fleet)
    reply = await stream.ask(complete_task={"lease": lease})
    assert Refusal.of_status(reply.error).reason == "STORE_UNAVAILABLE"
    # It becomes the primary again by itself. The second one is told of by the stream of changes for sure.
    await offered(fleet, stream, "after", "and-again")
    for name in ("task", "before", "after"):
        assert (await alice.call("GetTask", task_id=name)).task.task_id == name
    await worker.call("CompleteTask", lease=lease)
    await stream.close()


@pytest.mark.guarantee(
    "mongodb", "A primary that says that it is none, or becomes none: the same, and no lease is lost"
)
@pytest.mark.parametrize(
    "code",
    [10107, 189, 11602],
    ids=["NotWritablePrimary", "PrimarySteppedDown", "InterruptedDueToReplStateChange"],
)
async def test_what_a_primary_says_that_is_none(fleet: Fleet, server: MongoServer, code: int) -> None:
    alice, worker = fleet.party("alice", 0), fleet.party("worker", 0)
    await alice.call("CreateTask", creation())
    lease = await claimed(worker)
    try:
        # Said once, it is the driver that asks again.
        await fail(server, {"times": 1}, errorCode=code)
        assert (await alice.call("CreateTask", creation("once"))).created
        await fail(server, "alwaysOn", errorCode=code)
        await both_refuse(fleet)
    finally:
        await fail(server, "off")
    task = (await answered(lambda: alice.call("GetTask", task_id="task"))).task
    assert task.task_id == "task"
    await worker.call("CompleteTask", lease=lease)


@pytest.mark.guarantee(
    "mongodb", "Without change streams services hear of each other all the same, by looking"
)
async def test_a_server_without_change_streams(cradle: Nursery, tmp_path: Path) -> None:
    with server_with("--standalone") as server, MongoClient[dict[str, Any]](server.url) as client:
        with pytest.raises(OperationFailure) as error, client["test"]["durable_store"].watch():
            pass
        assert error.value.code == 40573
        async with two_on(server, cradle, tmp_path) as fleet:
            stream = fleet.party("worker", 1).open()
            await stream.connect(drivers=[MAIL])
            await offered(fleet, stream, "one", "two")
            await stream.close()
