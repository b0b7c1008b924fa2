"""A server whose disk or clock fails it: a clear refusal, and nothing that was answered is missing after."""

import os
import signal
import sqlite3
from pathlib import Path

import pytest

from durable_service.client import Condition, Driver, DurableError, NewTask, TaskState
from durable_service.client.methods import CREATE_TASK

from .ground import Ground, service
from .nursery import Nursery

pytestmark = pytest.mark.process
FULL_DISK = "A full disk refuses writes, loses nothing, and takes them once it has room"
NO_WRITES = "A database that takes no writes: they are refused as such, until it does again"


async def refused(call: object) -> DurableError:
    with pytest.raises(DurableError) as refusal:
        await call  # type: ignore[misc]
    return refusal.value


async def create(ground: Ground, task_id: str, bytes_of_input: int) -> None:
    """Asks once: the client would ask again by itself, which is what it should do."""
    new = NewTask(task_id, Driver("large", 1), input="x" * bytes_of_input)
    await ground.alice.calls.call(CREATE_TASK, new.to_request(), attempts=1)


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param("disk-full", marks=pytest.mark.guarantee("sqlite", FULL_DISK)),
        pytest.param("read-only", marks=pytest.mark.guarantee("sqlite", NO_WRITES)),
    ],
)
async def test_a_disk_that_takes_nothing(cradle: Nursery, tmp_path: Path, trouble: str) -> None:
    async with service(cradle, tmp_path, trouble=trouble) as ground:
        await ground.create("before")
        gate = tmp_path / "gate"
        worker = await ground.work("gate", "plain", gate=str(gate))
        await worker.says("at the gate")
        ground.server.signal(signal.SIGUSR1)
        await ground.server.says("in trouble")
        error = await refused(create(ground, "large", 500_000))
        assert (error.reason, error.code.name) == ("STORE_UNAVAILABLE", "UNAVAILABLE")
        # What the caller hears names no file and no cause; the operator's log does.
        assert "tasks.db" not in str(error)
        if trouble == "read-only":
            # The worker keeps its task, and does nothing that is not written down before.
            gate.touch()
            assert (await refused(create(ground, "small", 1))).reason == "STORE_UNAVAILABLE"
            # Reads neither: a request whose nonce is not written down could be sent again by anybody.
            assert (await refused(ground.task("before"))).reason == "STORE_UNAVAILABLE"
            assert ground.sent("before") == []
        else:
            assert (await ground.task("before")).state is TaskState.RUNNING
        ground.server.signal(signal.SIGUSR2)
        await ground.server.says("relieved")
        gate.touch()
        assert await worker.end() == 0, worker.lines
        assert ground.sent("before") == ["plain"]
        assert (await refused(ground.task("large"))).reason == "TASK_NOT_FOUND"
        await ground.server.kill()
        await ground.serve()
        task = await ground.task("before")
        assert (task.state, task.usage and task.usage.attempts) == (TaskState.COMPLETED, 1)
        await create(ground, "large", 500_000)


@pytest.mark.guarantee("sqlite", "What was answered while the disk filled up is there after a kill")
async def test_what_was_answered_on_a_filling_disk_is_there(cradle: Nursery, tmp_path: Path) -> None:
    async with service(cradle, tmp_path, trouble="disk-full") as ground:
        await ground.create("first")
        ground.server.signal(signal.SIGUSR1)
        await ground.server.says("in trouble")
        answered, unanswered = [], []
        for number in range(30):
            # Small ones fit into what is left of the last pages, for a while.
            try:
                await create(ground, f"task-{number}", 2_000)
            except DurableError as error:
                unanswered.append(error.reason)
            else:
                answered.append(number)
        await ground.server.kill()
        await ground.serve()
        found = {task.id async for task in ground.alice.tasks.list()}
        assert found == {"first", *(f"task-{number}" for number in answered)}
        assert set(unanswered) == {"STORE_UNAVAILABLE"}


@pytest.mark.guarantee("sqlite", "A damaged store is refused at the start, and left as it is")
@pytest.mark.parametrize("damage", ["pages", "head"])
async def test_a_damaged_file(cradle: Nursery, tmp_path: Path, damage: str) -> None:
    async with service(cradle, tmp_path) as ground:
        for number in range(40):
            await ground.create(f"task-{number}")
        ground.server.signal(signal.SIGTERM)
        assert await ground.server.end() == 0
        database = tmp_path / "tasks.db"
        assert not database.with_name("tasks.db-wal").exists()
        content = bytearray(database.read_bytes())
        if damage == "head":
            content[:100] = os.urandom(100)
        else:
            content[4_096:] = os.urandom(len(content) - 4_096)
        database.write_bytes(content)
        again = await ground.nursery.begin(
            tmp_path,
            "server",
            "serve",
            argv=[
                *("--dev", "--listen", ground.address, "--store", f"sqlite:///{database}"),
                *("--principals", str(tmp_path / "principals.json")),
            ],
        )
        assert await again.end() == 2
        (line,) = [line for line in again.lines if line.startswith("Error")]
        assert line.startswith(f"Error: --store sqlite:///{database}: ")
        assert "Traceback" not in "\n".join(again.lines)
        assert database.read_bytes() == content


@pytest.mark.guarantee("sqlite", "A damaged record harms no other task")
async def test_one_damaged_record_harms_no_other(ground: Ground) -> None:
    await ground.create("a")
    await ground.create("b")
    ground.server.signal(signal.SIGTERM)
    assert await ground.server.end() == 0
    connection = sqlite3.connect(ground.folder / "tasks.db")
    (body,) = connection.execute("SELECT body FROM progress WHERE id = 1").fetchone()
    connection.execute("UPDATE progress SET body = ? WHERE id = 1", (body.replace(b"queued", b"quEued"),))
    connection.commit()
    connection.close()
    await ground.serve()
    assert (await refused(ground.task("a"))).reason == "STORE_UNAVAILABLE"
    await ground.alice.tasks.cancel("b")
    assert (await ground.task("b")).state is TaskState.CANCELED


@pytest.mark.guarantee(
    "sqlite", "A clock that is put back an hour ends nothing early, and lets nobody wait for it"
)
async def test_a_clock_that_is_put_back_an_hour(cradle: Nursery, tmp_path: Path) -> None:
    async with service(cradle, tmp_path, trouble="clock-back") as ground:
        await ground.create("a")
        gate = tmp_path / "gate"
        worker = await ground.work("gate", "gated", gate=str(gate))
        await worker.says("at the gate")
        ground.server.signal(signal.SIGUSR1)
        await ground.server.says("in trouble")
        before = await ground.task("a")
        gate.touch()
        # The lease went on, the approval's ten minutes did not end, and nobody waits an hour for anything.
        await worker.says("ended suspended")
        assert Condition.APPROVAL_PENDING in (await ground.task("a")).conditions
        await ground.approve("a")
        # A worker that is killed holds its task for one lease, by a clock that only goes on.
        killed = await ground.work("gated", fuse=("effect:after", 1))
        assert await killed.end() == -9
        await ground.pass_lease()
        task = await ground.until("a", Condition.RECOVERY_REQUIRED, seconds=10)
        assert task.updated_at_ms >= before.updated_at_ms
        assert await (await ground.recover("a")).end() == 0
        times = [event.at_ms async for event in ground.alice.records.follow("a", follow=False)]  # type: ignore[union-attr]
        assert times == sorted(times)


@pytest.mark.parametrize("missing", ["folder", "file"])
async def test_a_place_that_cannot_be_written_to(cradle: Nursery, tmp_path: Path, missing: str) -> None:
    async with service(cradle, tmp_path) as ground:
        place = tmp_path / "nowhere" / "tasks.db"
        if missing == "file":
            place = tmp_path / "taken"
            place.mkdir()
        argv = [
            *("--dev", "--listen", "127.0.0.1:1", "--store", f"sqlite:///{place}"),
            *("--principals", str(tmp_path / "principals.json")),
        ]
        second = await ground.nursery.begin(tmp_path, "server", "serve", argv=argv)
        assert await second.end() == 2
        assert [line for line in second.lines if line.startswith(f"Error: --store sqlite:///{place}: ")]


@pytest.mark.guarantee("sqlite", "A second service on the same store is refused, and disturbs nobody")
async def test_two_servers_on_one_file(ground: Ground) -> None:
    argv = [
        *("--dev", "--listen", "127.0.0.1:1", "--store", f"sqlite:///{ground.folder / 'tasks.db'}"),
        *("--principals", str(ground.folder / "principals.json")),
    ]
    second = await ground.nursery.begin(ground.folder, "server", "serve", argv=argv)
    assert await second.end() == 2
    assert "in use by another process" in second.lines[-1]
    await ground.create("a")
