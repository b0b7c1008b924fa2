"""What the writer does within one transaction."""

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from durable_service.core.approvals import approvable
from durable_service.core.availability import availability
from durable_service.core.definition import TaskKey
from durable_service.core.lapses import due_at_ms
from durable_service.core.model import Approval, TaskEvent, TaskRecord, Tombstone
from durable_service.core.states import ApprovalDecision
from durable_service.store.base import StoreLimits, TaskChange
from durable_service.store.record_document import (
    encode_definition,
    encode_event,
    encode_lease,
    encode_progress,
)
from durable_service.store.sqlite_rows import checksum, event_by_id, stored_task, tombstone_of

_INSERT_TASK = """
INSERT INTO tasks (tenant_id, task_id, actor_id, session_id, root_run_id, driver_id, driver_version,
    created_at_ms, updated_at_ms, state, queue, claimable_at_ms, due_at_ms, last_sequence, lease)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE_TASK = """
UPDATE tasks SET updated_at_ms = ?, state = ?, queue = ?, claimable_at_ms = ?, due_at_ms = ?,
    last_sequence = ?, lease = ? WHERE id = ?
"""
_RENEW_TASK = "UPDATE tasks SET queue = ?, claimable_at_ms = ?, due_at_ms = ?, lease = ? WHERE id = ?"
_COUNT = """
INSERT INTO state_counts (tenant_id, state, tasks) VALUES (?, ?, ?)
ON CONFLICT (tenant_id, state) DO UPDATE SET tasks = tasks + excluded.tasks
"""


class Stored(NamedTuple):
    """A record and the number of its rows."""

    id: int
    record: TaskRecord


class Transaction:
    """The writes of one commit, and what they change.

    Attributes:
        now_ms: the instant of everything in it.
        staged: the tasks that it has written, None for those it has removed.
        changes: in the order in which they were made.
        wrote: whether there is anything to commit.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        known: dict[TaskKey, Stored],
        limits: StoreLimits,
        now_ms: int,
    ) -> None:
        self._connection = connection
        self._known = known
        self._limits = limits
        self.now_ms = now_ms
        self.staged: dict[TaskKey, Stored | None] = {}
        self.loaded: dict[TaskKey, Stored] = {}
        self.changes: list[TaskChange] = []
        self.wrote = False

    def load(self, key: TaskKey) -> Stored | None:
        """The task as this transaction sees it."""
        if key in self.staged:
            return self.staged[key]
        known = self._known.get(key) or self.loaded.get(key)
        if known is None and (row := stored_task(self._connection, key)) is not None:
            known = self.loaded[key] = Stored(*row)
        return known

    def tombstone(self, key: TaskKey) -> Tombstone | None:
        return tombstone_of(self._connection, key)

    def event(self, stored: Stored, event_id: str) -> TaskEvent | None:
        return event_by_id(self._connection, stored.id, event_id)

    def insert(self, record: TaskRecord, events: Iterable[TaskEvent]) -> None:
        definition = record.definition
        identity, driver = definition.identity, definition.driver
        cursor = self._write(
            _INSERT_TASK,
            identity.tenant_id,
            definition.id,
            identity.actor_id,
            identity.session_id,
            identity.root_run_id,
            None if driver is None else driver.id,
            None if driver is None else driver.version,
            record.created_at_ms,
            record.updated_at_ms,
            record.state,
            *_places(record),
            record.last_sequence,
            encode_lease(record.lease),
        )
        stored = Stored(cursor.lastrowid or 0, record)
        body = encode_definition(record)
        self._write("INSERT INTO definitions VALUES (?, ?, ?)", stored.id, body, checksum(body))
        progress = encode_progress(record)
        self._write("INSERT INTO progress VALUES (?, ?, ?)", stored.id, progress, checksum(progress))
        self._write(_COUNT, identity.tenant_id, record.state, 1)
        self._keep(stored, None, events)

    def replace(self, before: Stored, record: TaskRecord, events: Iterable[TaskEvent]) -> None:
        old = before.record
        lease = encode_lease(record.lease)
        if record.revision == old.revision:
            self._write(_RENEW_TASK, *_places(record), lease, before.id)
            self._keep(Stored(before.id, record), old, ())
            return
        self._write(
            _UPDATE_TASK,
            record.updated_at_ms,
            record.state,
            *_places(record),
            record.last_sequence,
            lease,
            before.id,
        )
        body = encode_progress(record)
        self._write(
            "UPDATE progress SET body = ?, checksum = ? WHERE id = ?", body, checksum(body), before.id
        )
        if record.state is not old.state:
            self._write(_COUNT, record.key.tenant_id, old.state, -1)
            self._write(_COUNT, record.key.tenant_id, record.state, 1)
        self._index_approvals(before.id, old, record)
        self._index_artifacts(before.id, old, record)
        self._keep(Stored(before.id, record), old, events)

    def bury(self, stored: Stored, tombstone: Tombstone) -> None:
        """Removes a task and keeps its tombstone."""
        for table in ("tasks", "definitions", "progress", "events", "pending_approvals", "artifact_blobs"):
            self._write(f"DELETE FROM {table} WHERE id = ?", stored.id)  # noqa: S608 - the names stand above
        key = stored.record.key
        self._write(_COUNT, key.tenant_id, stored.record.state, -1)
        self._write(
            "INSERT INTO tombstones VALUES (?, ?, ?, ?)",
            key.tenant_id,
            key.task_id,
            tombstone.digest,
            tombstone.purged_at_ms,
        )
        self.staged[key] = None
        self.changes.append(TaskChange(stored.record, None))

    def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        """True the first time; forgets what has expired."""
        self._connection.execute("DELETE FROM nonces WHERE expires_at_ms <= ?", (self.now_ms,))
        cursor = self._write(
            "INSERT OR IGNORE INTO nonces VALUES (?, ?, ?)", caller, nonce, self.now_ms + ttl_ms
        )
        return cursor.rowcount == 1

    def note_time(self) -> None:
        """Writes down how late it is, so that the clock does not go back over a restart."""
        self._write("UPDATE meta SET value = max(value, ?) WHERE name = 'last_now_ms'", self.now_ms)

    def _write(self, statement: str, *values: object) -> sqlite3.Cursor:
        self.wrote = True
        return self._connection.execute(statement, values)

    def _keep(self, stored: Stored, before: TaskRecord | None, events: Iterable[TaskEvent]) -> None:
        kept = tuple(events)
        for event in kept:
            body = encode_event(event)
            self._write(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
                stored.id,
                event.sequence,
                event.event_id,
                body,
                checksum(body),
            )
        last = stored.record.last_sequence
        if kept and last > self._limits.events_per_task:
            oldest = last - self._limits.events_per_task
            self._write("DELETE FROM events WHERE id = ? AND sequence <= ?", stored.id, oldest)
        self.staged[stored.record.key] = stored
        self.changes.append(TaskChange(before, stored.record, kept))

    def _index_approvals(self, task: int, before: TaskRecord, after: TaskRecord) -> None:
        if after.approvals is before.approvals and after.state is before.state:
            return
        old, new = _undecided(before), _undecided(after)
        for name in old.keys() - new.keys():
            self._write("DELETE FROM pending_approvals WHERE id = ? AND approval_id = ?", task, name)
        for name in new.keys() - old.keys():
            approval = new[name]
            self._write(
                "INSERT INTO pending_approvals VALUES (?, ?, ?, ?, ?, ?)",
                approval.id,
                task,
                after.key.tenant_id,
                approval.actor_id,
                approval.created_at_ms,
                approval.expires_at_ms,
            )

    def _index_artifacts(self, task: int, before: TaskRecord, after: TaskRecord) -> None:
        if after.artifacts is not before.artifacts:
            for name in after.artifacts.keys() - before.artifacts.keys():
                key = after.artifacts[name].blob_key
                self._write("INSERT OR IGNORE INTO artifact_blobs VALUES (?, ?)", key, task)


def _places(record: TaskRecord) -> tuple[str | None, int | None, int | None]:
    place = availability(record)
    return (
        None if place is None else place.queue,
        None if place is None else place.at_ms,
        due_at_ms(record),
    )


def _undecided(record: TaskRecord) -> dict[str, Approval]:
    if not approvable(record):
        return {}
    return {
        name: approval
        for name, approval in record.approvals.items()
        if approval.decision is ApprovalDecision.PENDING
    }
