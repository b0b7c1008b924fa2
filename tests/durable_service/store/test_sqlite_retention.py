"""What a SQLite store drops of its journals: from older files too, and without looking at everything."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from durable_service.core.canonical_json import CanonicalJson
from durable_service.core.model import TaskEvent
from durable_service.store.base import StoreLimits
from durable_service.store.contract.scene import Scene, key
from durable_service.store.record_document import encode_event
from durable_service.store.sqlite import SqliteTaskStore
from durable_service.store.sqlite_file import APPLICATION_ID, connect_writer
from durable_service.store.sqlite_rows import checksum
from durable_service.store.sqlite_schema import MIGRATIONS, migrate


def event(sequence: int, at_ms: int, data: str) -> bytes:
    return encode_event(TaskEvent(sequence, "note", at_ms, None, 0, CanonicalJson(data)))


def file_of_the_second_version(database: Path, entries: Iterable[tuple[int, int, bytes]]) -> None:
    with closing(sqlite3.connect(database)) as connection:
        for script in MIGRATIONS[:2]:
            connection.executescript(script)
        connection.executemany(
            "INSERT INTO events VALUES (?, ?, NULL, ?, ?)",
            [(task, sequence, body, checksum(body)) for task, sequence, body in entries],
        )
        connection.execute("PRAGMA user_version = 2")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.commit()


def test_an_older_file_is_taken_over(tmp_path: Path) -> None:
    database = tmp_path / "tasks.db"
    entries = [
        (1, 3, event(3, 1_000, '"é"')),
        (1, 4, b"damaged"),
        (2, 1, event(1, 1_500, "{}")),
        (1, 5, event(5, 2_000, "12345")),
    ]
    file_of_the_second_version(database, entries)
    with closing(connect_writer(database)) as connection:
        migrate(connection)
        rows = connection.execute(
            "SELECT id, sequence, at_ms, data_bytes, bytes_before FROM events ORDER BY id, sequence"
        ).fetchall()
        bodies = connection.execute("SELECT body, checksum FROM events ORDER BY id, sequence").fetchall()
    assert rows == [
        (1, 3, 1_000, 4, 0),
        # As old as the one before it, so that its age leaves no hole.
        (1, 4, 1_000, 0, 4),
        (1, 5, 2_000, 5, 4),
        (2, 1, 1_500, 2, 0),
    ]
    assert [body for body, _ in bodies] == [entries[0][2], b"damaged", entries[3][2], entries[2][2]]
    assert all(checksum(body) == expected for body, expected in bodies)


async def test_bounds_may_become_narrower(tmp_path: Path) -> None:
    database = tmp_path / "tasks.db"
    store = SqliteTaskStore(database)
    scene = Scene(store)
    await scene.create("a")
    holder = await scene.claim("a")
    for name in ("e1", "e2", "e3"):
        await scene.append("a", holder, name, '"' + "x" * 98 + '"')
    await store.close()
    store = SqliteTaskStore(database, limits=StoreLimits(event_bytes_per_task=201))
    scene.store = store
    # Nothing is dropped before something is written.
    assert (await store.events(key("a"), 0, 10)).earliest == 1
    await scene.append("a", holder, "e4", "1")
    page = await store.events(key("a"), 4, 10)
    assert [entry.event_id for entry in page.events] == ["e2", "e3", "e4"]
    await store.close()


async def test_no_statement_looks_at_every_entry(tmp_path: Path) -> None:
    store = SqliteTaskStore(
        tmp_path / "tasks.db",
        limits=StoreLimits(events_per_task=5, event_bytes_per_task=500, event_age_ms=60_000),
    )
    scene = Scene(store)
    asked: list[str] = []
    await scene.create("a")
    store._writing.set_trace_callback(asked.append)
    holder = await scene.claim("a")
    await scene.append("a", holder, "e1")
    await store.trim_events(10)
    store._writing.set_trace_callback(None)
    about_entries = [each for each in asked if "events" in each and not each.startswith("--")]
    assert len(about_entries) >= 8
    for statement in about_entries:
        for step in store._writing.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall():
            assert "SCAN" not in step[3], (statement, step)
            assert "TEMP B-TREE" not in step[3], (statement, step)
    await store.close()
