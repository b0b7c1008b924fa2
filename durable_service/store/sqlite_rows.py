"""Rows read from a SQLite store, each checked against its checksum."""

import sqlite3
import zlib
from collections.abc import Iterable

from durable_service.core.definition import TaskKey
from durable_service.core.model import TaskEvent, TaskRecord, Tombstone
from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.record_document import decode_event, decode_record

# What `record_of` takes, after the number of the task.
RECORD_COLUMNS = (
    "tasks.id, definitions.body, definitions.checksum, progress.body, progress.checksum, tasks.lease"
)
RECORD_TABLES = "tasks JOIN definitions USING (id) JOIN progress USING (id)"


def checksum(body: bytes) -> int:
    return zlib.crc32(body)


def verified(body: bytes, expected: int) -> bytes:
    """The bytes, when they are those that were written: the database does not notice every damage.

    Raises:
        StoreUnavailable: they are not.
    """
    if zlib.crc32(body) != expected:
        raise StoreUnavailable(StoreFault.CORRUPT, "a record in the store is damaged")
    return body


def record_of(row: tuple[int, bytes, int, bytes, int, bytes | None]) -> tuple[int, TaskRecord]:
    number, definition, definition_sum, progress, progress_sum, lease = row
    verified(definition, definition_sum)
    verified(progress, progress_sum)
    return number, decode_record(definition, progress, lease)


def meta(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return int(value)


def stored_task(connection: sqlite3.Connection, key: TaskKey) -> tuple[int, TaskRecord] | None:
    row = connection.execute(
        f"SELECT {RECORD_COLUMNS} FROM {RECORD_TABLES} WHERE tenant_id = ? AND task_id = ?",  # noqa: S608
        (key.tenant_id, key.task_id),
    ).fetchone()
    return None if row is None else record_of(row)


def tombstone_of(connection: sqlite3.Connection, key: TaskKey) -> Tombstone | None:
    row = connection.execute(
        "SELECT digest, purged_at_ms FROM tombstones WHERE tenant_id = ? AND task_id = ?",
        (key.tenant_id, key.task_id),
    ).fetchone()
    return None if row is None else Tombstone(key, *row)


def event_by_id(connection: sqlite3.Connection, task: int, event_id: str) -> TaskEvent | None:
    found = events_of(
        connection.execute(
            "SELECT body, checksum FROM events WHERE id = ? AND event_id = ?", (task, event_id)
        )
    )
    return found[0] if found else None


def events_of(rows: Iterable[tuple[bytes, int]]) -> tuple[TaskEvent, ...]:
    return tuple(decode_event(verified(body, expected)) for body, expected in rows)
