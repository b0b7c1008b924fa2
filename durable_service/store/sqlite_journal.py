"""Journals in a SQLite store, each within the bounds of the store."""

import sqlite3
from collections.abc import Sequence

from durable_service.core.canonical_json import canonical_bytes
from durable_service.core.model import TaskEvent
from durable_service.store.base import StoreLimits
from durable_service.store.record_document import encode_event
from durable_service.store.sqlite_rows import checksum

# The bytes before an entry are those of all entries of its task that were kept when it was written, and of
# those before them: the difference of two entries is what lies between them, whatever was dropped in front.
_INSERT = """
INSERT INTO events (id, sequence, event_id, at_ms, data_bytes, body, checksum, bytes_before)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, coalesce(
    (SELECT bytes_before + data_bytes FROM events WHERE id = ?1 ORDER BY sequence DESC LIMIT 1), 0
))
"""
_FIRST_WITHIN_BYTES = """
SELECT sequence FROM events
WHERE id = ?1 AND bytes_before >= (
    SELECT bytes_before + data_bytes - ?3 FROM events WHERE id = ?1 AND sequence = ?2
)
ORDER BY sequence LIMIT 1
"""
_FIRST_WITHIN_AGE = "SELECT sequence FROM events WHERE id = ? AND at_ms > ? ORDER BY sequence LIMIT 1"
# Entries of one instant in the order in which they were written, so that no journal has a hole.
_DROP_OLD = """
DELETE FROM events WHERE rowid IN (
    SELECT rowid FROM events WHERE at_ms <= ? ORDER BY at_ms, rowid LIMIT ?
)
"""


def add_events(
    connection: sqlite3.Connection, task: int, events: Sequence[TaskEvent], limits: StoreLimits, now_ms: int
) -> None:
    """Adds entries to a journal, and drops those of it that are too many, too large or too old."""
    for event in events:
        body = encode_event(event)
        connection.execute(
            _INSERT,
            (
                task,
                event.sequence,
                event.event_id,
                event.at_ms,
                canonical_bytes(event.data),
                body,
                checksum(body),
            ),
        )
    first = _first_kept(connection, task, events[-1].sequence, limits, now_ms)
    if first > 1:
        connection.execute("DELETE FROM events WHERE id = ? AND sequence < ?", (task, first))


def drop_old_events(connection: sqlite3.Connection, until_ms: int, limit: int) -> int:
    """Drops entries of an instant or older, the oldest first; how many there were."""
    return connection.execute(_DROP_OLD, (until_ms, limit)).rowcount


def _first_kept(
    connection: sqlite3.Connection, task: int, last: int, limits: StoreLimits, now_ms: int
) -> int:
    """The sequence of the oldest entry that stays."""
    first = last - limits.events_per_task + 1
    if limits.event_bytes_per_task is not None:
        row = connection.execute(_FIRST_WITHIN_BYTES, (task, last, limits.event_bytes_per_task)).fetchone()
        # The newest stays, whatever its size.
        first = max(first, last if row is None else row[0])
    if limits.event_age_ms is not None:
        row = connection.execute(_FIRST_WITHIN_AGE, (task, now_ms - limits.event_age_ms)).fetchone()
        first = max(first, last + 1 if row is None else row[0])
    return first
