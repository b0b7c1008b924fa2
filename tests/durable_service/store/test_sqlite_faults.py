"""What the SQLite store says when its file, its disk or its clock fails it."""

import asyncio
import os
import sqlite3
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.errors import DomainError, Reason
from durable_service.core.extensions import update_extension
from durable_service.core.outcomes import cancel
from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.contract.scene import Scene, creation, key
from durable_service.store.sqlite import SqliteTaskStore
from durable_service.store.sqlite_transaction import Transaction

LARGE = CanonicalJson('"' + "x" * 200_000 + '"')


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteTaskStore]:
    opened = SqliteTaskStore(tmp_path / "tasks.db")
    yield opened
    await opened.close()


async def fault_of(call: object) -> StoreFault:
    with pytest.raises(StoreUnavailable) as failure:
        await call  # type: ignore[misc]
    assert failure.value.reason is Reason.STORE_UNAVAILABLE
    return failure.value.fault


async def fill(store: SqliteTaskStore, task_id: str) -> None:
    await store.update(key(task_id), lambda record, now: update_extension(record, "slot", LARGE, now))


async def test_a_full_disk(store: SqliteTaskStore, tmp_path: Path) -> None:
    scene = Scene(store)
    await scene.create("a", "b")
    before = await scene.record("a")
    changes = scene.watch()
    (pages,) = store._writing.execute("PRAGMA page_count").fetchone()
    store._writing.execute(f"PRAGMA max_page_count = {pages + 2}")
    assert await fault_of(fill(store, "a")) is StoreFault.DISK_FULL
    # Nothing was acknowledged, told or kept, and what is small still works.
    assert await scene.record("a") == before
    assert changes == []
    await store.update(key("b"), lambda record, now: cancel(record, "", now))
    store._writing.execute("PRAGMA max_page_count = 1073741823")
    await fill(store, "a")
    await store.close()
    again = SqliteTaskStore(tmp_path / "tasks.db")
    record = await again.get(key("a"))
    assert record is not None
    assert record.extensions["slot"].value == LARGE
    await again.close()


async def test_what_is_refused_beside_a_full_disk_is_still_refused_for_its_own_reason(
    store: SqliteTaskStore,
) -> None:
    scene = Scene(store)
    await scene.create("a", "b")
    (pages,) = store._writing.execute("PRAGMA page_count").fetchone()
    store._writing.execute(f"PRAGMA max_page_count = {pages + 2}")
    answers = await asyncio.gather(
        fill(store, "a"),
        store.update(key("missing"), lambda record, now: cancel(record, "", now)),
        store.update(key("b"), lambda record, now: cancel(record, "", now)),
        return_exceptions=True,
    )
    assert isinstance(answers[0], StoreUnavailable)
    assert isinstance(answers[1], DomainError)
    assert answers[1].reason is Reason.TASK_NOT_FOUND
    assert not isinstance(answers[2], BaseException)
    assert (await scene.record("b")).state == "canceled"


async def test_a_store_that_may_only_be_read(store: SqliteTaskStore) -> None:
    scene = Scene(store)
    await scene.create("a")
    store._writing.execute("PRAGMA query_only = ON")
    assert await fault_of(store.create(creation("b"))) is StoreFault.READ_ONLY
    assert (await scene.record("a")).revision == 0
    store._writing.execute("PRAGMA query_only = OFF")
    await scene.create("b")


async def test_whether_it_takes_writes_is_tried_after_a_failure_alone(store: SqliteTaskStore) -> None:
    scene = Scene(store)
    await scene.create("a")
    store._writing.execute("PRAGMA query_only = ON")
    await store.check_writes()
    assert await fault_of(store.create(creation("b"))) is StoreFault.READ_ONLY
    assert await fault_of(store.check_writes()) is StoreFault.READ_ONLY
    store._writing.execute("PRAGMA query_only = OFF")
    await store.check_writes()
    store._writing.execute("PRAGMA query_only = ON")
    await store.check_writes()


async def test_work_that_writes_nothing_does_not_tell_whether_it_takes_writes(
    store: SqliteTaskStore,
) -> None:
    await Scene(store).create("a")
    (pages,) = store._writing.execute("PRAGMA page_count").fetchone()
    store._writing.execute(f"PRAGMA max_page_count = {pages + 2}")
    assert await fault_of(fill(store, "a")) is StoreFault.DISK_FULL
    with pytest.raises(DomainError) as refusal:
        await store.update(key("missing"), lambda record, now: cancel(record, "", now))
    assert refusal.value.reason is Reason.TASK_NOT_FOUND
    assert store._writer.failing
    # There is room for what is small.
    await store.check_writes()
    assert not store._writer.failing


def test_a_lock_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "tasks.db.lock").mkdir()
    with pytest.raises(StoreUnavailable, match="cannot write beside") as refusal:
        SqliteTaskStore(tmp_path / "tasks.db")
    assert refusal.value.fault is StoreFault.READ_ONLY


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot write beside"):
        SqliteTaskStore(tmp_path / "missing" / "tasks.db")


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "tasks.db").mkdir()
    with pytest.raises(StoreUnavailable, match=r"cannot write .*tasks\.db: Is a directory") as refusal:
        SqliteTaskStore(tmp_path / "tasks.db")
    assert refusal.value.fault is StoreFault.READ_ONLY


async def test_the_files_are_for_their_owner_alone(store: SqliteTaskStore, tmp_path: Path) -> None:
    await Scene(store).create("a")
    modes = modes_of(tmp_path)
    assert modes == {f"tasks.db{end}": 0o600 for end in ("", "-wal", "-shm", ".lock")}


def modes_of(folder: Path) -> dict[str, int]:
    return {entry.name: entry.stat().st_mode & 0o777 for entry in folder.iterdir()}


async def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    database = tmp_path / "tasks.db"
    database.write_bytes(b"this is a text and not a database" * 200)
    with pytest.raises(StoreUnavailable, match="not a store") as refusal:
        SqliteTaskStore(database)
    assert refusal.value.fault is StoreFault.CORRUPT
    # The refusal has let go of the file.
    database.unlink()
    await SqliteTaskStore(database).close()


@pytest.mark.guarantee("sqlite", "What belongs to another program is refused, and left as it is")
async def test_the_database_of_another_program(tmp_path: Path) -> None:
    database = tmp_path / "tasks.db"
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    with pytest.raises(StoreUnavailable, match="another program: choose another file"):
        SqliteTaskStore(database)
    connection = sqlite3.connect(database)
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("songs",)]
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


async def closed_store_with(tmp_path: Path, *task_ids: str) -> Path:
    database = tmp_path / "tasks.db"
    store = SqliteTaskStore(database)
    await Scene(store).create(*task_ids)
    await store.close()
    return database


async def test_a_damaged_page(tmp_path: Path) -> None:
    database = await closed_store_with(tmp_path, *(f"task-{number}" for number in range(200)))
    content = bytearray(database.read_bytes())
    # Every page but the first holds rubbish from here on.
    content[4096:] = os.urandom(len(content) - 4096)
    database.write_bytes(content)
    assert await fault_of(opened_and_asked(database)) is StoreFault.CORRUPT


async def opened_and_asked(database: Path) -> None:
    store = SqliteTaskStore(database)
    try:
        await store.get(key("task-0"))
    finally:
        await store.close()


@pytest.mark.guarantee("sqlite", "A damaged record harms no other task")
async def test_a_damaged_record_harms_no_other(tmp_path: Path) -> None:
    database = await closed_store_with(tmp_path, "a", "b")
    connection = sqlite3.connect(database)
    # One flipped letter, which the database itself does not notice.
    (body,) = connection.execute("SELECT body FROM progress WHERE id = 1").fetchone()
    connection.execute("UPDATE progress SET body = ? WHERE id = 1", (body.replace(b"queued", b"quEued"),))
    connection.commit()
    connection.close()
    store = SqliteTaskStore(database)
    answers = await asyncio.gather(
        store.update(key("a"), lambda record, now: cancel(record, "", now)),
        store.update(key("b"), lambda record, now: cancel(record, "", now)),
        return_exceptions=True,
    )
    assert isinstance(answers[0], StoreUnavailable)
    assert answers[0].fault is StoreFault.CORRUPT
    assert not isinstance(answers[1], BaseException)
    assert await fault_of(store.get(key("a"))) is StoreFault.CORRUPT
    await store.close()


@pytest.mark.guarantee("sqlite", "What a newer version has written is refused at the start")
async def test_tables_of_a_newer_version(tmp_path: Path) -> None:
    database = await closed_store_with(tmp_path, "a")
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreUnavailable, match=r"schema version 99.*upgrade the service") as refusal:
        SqliteTaskStore(database)
    assert refusal.value.fault is StoreFault.NEWER_FORMAT


@pytest.mark.parametrize(
    ("change", "fault"),
    [({"format": 2}, StoreFault.NEWER_FORMAT), ({"colour": "red"}, StoreFault.CORRUPT)],
)
async def test_a_record_of_a_newer_version(
    tmp_path: Path, change: dict[str, object], fault: StoreFault
) -> None:
    database = await closed_store_with(tmp_path, "a")
    connection = sqlite3.connect(database)
    (body,) = connection.execute("SELECT body FROM progress").fetchone()
    changed = orjson.dumps({**orjson.loads(body), **change})
    connection.execute("UPDATE progress SET body = ?, checksum = ?", (changed, zlib.crc32(changed)))
    connection.commit()
    connection.close()
    store = SqliteTaskStore(database)
    assert await fault_of(store.get(key("a"))) is fault
    assert await fault_of(store.update(key("a"), lambda record, now: cancel(record, "", now))) is fault
    await store.close()


async def test_a_clock_that_was_put_back_while_the_store_was_closed(tmp_path: Path) -> None:
    wall = 1_700_000_000_000
    first = SqliteTaskStore(tmp_path / "tasks.db", wall=lambda: wall, steady=lambda: 5_000)
    record = await Scene(first).create("a")
    await first.close()
    steady = 7
    second = SqliteTaskStore(tmp_path / "tasks.db", wall=lambda: wall - 3_600_000, steady=lambda: steady)
    assert await second.now_ms() == record.created_at_ms
    steady += 30
    assert await second.now_ms() == record.created_at_ms + 30
    await second.close()


async def test_what_comes_together_is_committed_together(store: SqliteTaskStore) -> None:
    statements: list[str] = []
    store._writing.set_trace_callback(statements.append)
    release = asyncio.Event()
    loop = asyncio.get_running_loop()
    entered = asyncio.Event()

    def slow(transaction: Transaction) -> None:
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(30)

    held = asyncio.ensure_future(store._writer.do(slow))
    await entered.wait()
    waiting = [asyncio.ensure_future(store.create(creation(f"task-{number}"))) for number in range(50)]
    # Each has put its order in when it has run up to its first wait.
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(held, *waiting)
    store._writing.set_trace_callback(None)
    assert statements.count("COMMIT") == 2


async def test_an_answer_that_nobody_waits_for(store: SqliteTaskStore) -> None:
    scene = Scene(store)
    call = asyncio.ensure_future(store.create(creation("a")))
    await asyncio.sleep(0)
    call.cancel()
    await scene.create("b")
    # What was asked for happens all the same.
    assert (await scene.record("a")).revision == 0


async def test_a_closed_store(store: SqliteTaskStore) -> None:
    await Scene(store).create("a")
    await store.close()
    await store.close()
    assert await fault_of(store.create(creation("b"))) is StoreFault.CLOSED
    assert await fault_of(store.due(1)) is StoreFault.CLOSED


async def test_full_synchronisation_and_write_ahead_log(store: SqliteTaskStore) -> None:
    assert store._writing.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._writing.execute("PRAGMA synchronous").fetchone() == (2,)
