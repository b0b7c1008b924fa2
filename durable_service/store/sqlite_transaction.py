"""What the writer does within one transaction."""

import sqlite3
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from durable_service.core.definition import TaskKey
from durable_service.core.model import TaskEvent, TaskRecord, Tombstone
from durable_service.core.states import TaskState
from durable_service.store.base import StoreLimits, TaskChange
from durable_service.store.indexed_parts import (
    admitted_values,
    place_values,
    undecided_approvals,
    unknown_actions,
)
from durable_service.store.record_document import (
    encode_definition,
    encode_progress,
)
from durable_service.store.sqlite_journal import add_events, drop_old_events
from durable_service.store.sqlite_rows import checksum, event_by_id, meta, stored_task, tombstone_of

_INSERT_TASK = """
INSERT INTO tasks (tenant_id, task_id, actor_id, session_id, root_run_id, driver_id, driver_version,
    created_at_ms, updated_at_ms, state, last_sequence, position,
    queue, claimable_at_ms, due_at_ms, lease_worker, lease_expires_at_ms, lease)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_UPDATE_TASK = """
UPDATE tasks SET updated_at_ms = ?, state = ?, last_sequence = ?, position = ?,
    queue = ?, claimable_at_ms = ?, due_at_ms = ?, lease_worker = ?, lease_expires_at_ms = ?, lease = ?
WHERE id = ?
"""
_RENEW_TASK = """
UPDATE tasks SET queue = ?, claimable_at_ms = ?, due_at_ms = ?, lease_worker = ?, lease_expires_at_ms = ?,
    lease = ?
WHERE id = ?
"""
_TABLES_OF_TASKS = (
    "tasks",
    "definitions",
    "progress",
    "events",
    "approvals",
    "unknown_actions",
    "artifact_blobs",
)
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
        self._position: int | None = None
        # Written once for all tasks of the transaction.
        self._counts: Counter[tuple[str, TaskState]] = Counter()
        self._forgot_nonces = False

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
        cursor = self._write(
            _INSERT_TASK,
            *admitted_values(record),
            record.updated_at_ms,
            record.state,
            record.last_sequence,
            self._next_position(),
            *place_values(record),
        )
        stored = Stored(cursor.lastrowid or 0, record)
        body = encode_definition(record)
        self._write("INSERT INTO definitions VALUES (?, ?, ?)", stored.id, body, checksum(body))
        progress = encode_progress(record)
        self._write("INSERT INTO progress VALUES (?, ?, ?)", stored.id, progress, checksum(progress))
        self._counts[record.key.tenant_id, record.state] += 1
        self._keep(stored, None, events)

    def replace(self, before: Stored, record: TaskRecord, events: Iterable[TaskEvent]) -> None:
        old = before.record
        if record.revision == old.revision:
            self._write(_RENEW_TASK, *place_values(record), before.id)
            self._keep(Stored(before.id, record), old, ())
            return
        self._write(
            _UPDATE_TASK,
            record.updated_at_ms,
            record.state,
            record.last_sequence,
            self._next_position(),
            *place_values(record),
            before.id,
        )
        body = encode_progress(record)
        self._write(
            "UPDATE progress SET body = ?, checksum = ? WHERE id = ?", body, checksum(body), before.id
        )
        if record.state is not old.state:
            self._counts[record.key.tenant_id, old.state] -= 1
            self._counts[record.key.tenant_id, record.state] += 1
        self._index_claims(old, record)
        self._index_approvals(before.id, old, record)
        self._index_unknown_actions(before.id, old, record)
        self._index_artifacts(before.id, old, record)
        self._keep(Stored(before.id, record), old, events)

    def bury(self, stored: Stored, tombstone: Tombstone) -> None:
        """Removes a task and keeps its tombstone."""
        for table in _TABLES_OF_TASKS:
            self._write(f"DELETE FROM {table} WHERE id = ?", stored.id)  # noqa: S608 - the names stand above
        key = stored.record.key
        for attempt in stored.record.attempts:
            self._write(
                "DELETE FROM claims WHERE tenant_id = ? AND worker_id = ? AND claim_id = ? AND task_id = ?",
                key.tenant_id,
                attempt.worker_id,
                attempt.id,
                key.task_id,
            )
        self._counts[key.tenant_id, stored.record.state] -= 1
        self._write(
            "INSERT INTO tombstones VALUES (?, ?, ?, ?)",
            key.tenant_id,
            key.task_id,
            tombstone.digest,
            tombstone.purged_at_ms,
        )
        self.staged[key] = None
        self.changes.append(TaskChange(stored.record, None))

    def trim_events(self, limit: int) -> int:
        """Drops journal entries that are too old; how many."""
        age_ms = self._limits.event_age_ms
        if age_ms is None:
            return 0
        dropped = drop_old_events(self._connection, self.now_ms - age_ms, limit)
        self.wrote = self.wrote or dropped > 0
        return dropped

    def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        """True the first time; forgets what has expired."""
        if not self._forgot_nonces:
            self._connection.execute("DELETE FROM nonces WHERE expires_at_ms <= ?", (self.now_ms,))
            self._forgot_nonces = True
        cursor = self._write(
            "INSERT OR IGNORE INTO nonces VALUES (?, ?, ?)", caller, nonce, self.now_ms + ttl_ms
        )
        return cursor.rowcount == 1

    def note_progress(self) -> None:
        """Writes down what is kept once for all tasks: how late it is, the position, and the counts.

        The clock does not go back over a restart because of it.
        """
        self._write("UPDATE meta SET value = max(value, ?) WHERE name = 'last_now_ms'", self.now_ms)
        if self._position is not None:
            self._write("UPDATE meta SET value = ? WHERE name = 'position'", self._position)
        for (tenant_id, state), tasks in self._counts.items():
            if tasks:
                self._write(_COUNT, tenant_id, state, tasks)

    def _next_position(self) -> int:
        if self._position is None:
            self._position = meta(self._connection, "position")
        self._position += 1
        return self._position

    def _write(self, statement: str, *values: object) -> sqlite3.Cursor:
        self.wrote = True
        return self._connection.execute(statement, values)

    def _keep(self, stored: Stored, before: TaskRecord | None, events: Iterable[TaskEvent]) -> None:
        kept = tuple(events)
        if kept:
            self.wrote = True
            add_events(self._connection, stored.id, kept, self._limits, self.now_ms)
        self.staged[stored.record.key] = stored
        self.changes.append(TaskChange(before, stored.record, kept))

    def _index_claims(self, before: TaskRecord, after: TaskRecord) -> None:
        for attempt in after.attempts[len(before.attempts) :]:
            self._write(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)",
                after.key.tenant_id,
                attempt.worker_id,
                attempt.id,
                after.key.task_id,
            )

    def _index_approvals(self, task: int, before: TaskRecord, after: TaskRecord) -> None:
        if after.approvals is before.approvals and after.state is before.state:
            return
        for name in after.approvals.keys() - before.approvals.keys():
            approval = after.approvals[name]
            self._write(
                "INSERT INTO approvals VALUES (?, ?, ?, ?, ?, ?, 0)",
                task,
                name,
                after.key.tenant_id,
                approval.actor_id,
                approval.created_at_ms,
                approval.expires_at_ms,
            )
        old, new = undecided_approvals(before), undecided_approvals(after)
        for name in old ^ new:
            self._write(
                "UPDATE approvals SET pending = ? WHERE id = ? AND approval_id = ?", name in new, task, name
            )

    def _index_unknown_actions(self, task: int, before: TaskRecord, after: TaskRecord) -> None:
        if after.actions is before.actions:
            return
        old, new = unknown_actions(before), unknown_actions(after)
        for name in old - new:
            self._write("DELETE FROM unknown_actions WHERE id = ? AND action_id = ?", task, name)
        for name in new - old:
            since_ms = after.actions[name].updated_at_ms
            key = after.key
            self._write(
                "INSERT INTO unknown_actions VALUES (?, ?, ?, ?, ?)",
                task,
                name,
                key.tenant_id,
                key.task_id,
                since_ms,
            )

    def _index_artifacts(self, task: int, before: TaskRecord, after: TaskRecord) -> None:
        if after.artifacts is not before.artifacts:
            for name in after.artifacts.keys() - before.artifacts.keys():
                key = after.artifacts[name].blob_key
                self._write("INSERT OR IGNORE INTO artifact_blobs VALUES (?, ?)", key, task)
