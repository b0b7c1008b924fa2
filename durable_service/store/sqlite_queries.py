"""Reading questions to a SQLite store; each is asked within one snapshot."""
# ruff: noqa: S608 - statements are put together from texts that stand in this file

import heapq
import sqlite3
from collections.abc import Iterable, Sequence

from durable_service.core.definition import Driver, TaskKey
from durable_service.core.journal import check_cursor
from durable_service.core.model import TaskRecord
from durable_service.core.states import TaskState
from durable_service.store.base import (
    ApprovalMark,
    Backlog,
    Candidate,
    ChangePage,
    ClaimableQuery,
    EventPage,
    PageMark,
    PendingApproval,
    StateCount,
    TaskQuery,
    UnknownAction,
    UnknownMark,
)
from durable_service.store.record_document import decode_lease
from durable_service.store.sqlite_rows import RECORD_COLUMNS, RECORD_TABLES, events_of, meta, record_of
from durable_service.store.updates import not_found

# In the very words of the index over ended tasks, or it is not used.
_ENDED = "'completed', 'failed', 'canceled', 'stopped'"


def event_page(connection: sqlite3.Connection, key: TaskKey, after: int, limit: int) -> EventPage:
    row = connection.execute(
        "SELECT id, last_sequence FROM tasks WHERE tenant_id = ? AND task_id = ?",
        (key.tenant_id, key.task_id),
    ).fetchone()
    if row is None:
        raise not_found()
    task, latest = row
    (first,) = connection.execute("SELECT min(sequence) FROM events WHERE id = ?", (task,)).fetchone()
    earliest = latest + 1 if first is None else first
    check_cursor(after, earliest, latest)
    rows = connection.execute(
        "SELECT body, checksum FROM events WHERE id = ? AND sequence > ? ORDER BY sequence LIMIT ?",
        (task, after, limit),
    )
    return EventPage(events_of(rows), earliest, latest)


def claimable(connection: sqlite3.Connection, query: ClaimableQuery, now_ms: int) -> list[Candidate]:
    if query.drivers is None:
        found = list(_waiting(connection, query, None, now_ms))
    else:
        each = (_waiting(connection, query, driver, now_ms) for driver in query.drivers)
        found = heapq.nsmallest(query.limit, (place for places in each for place in places))
    return [_candidate(query.tenant_id, *row) for row in found]


def next_claimable_ms(connection: sqlite3.Connection, query: ClaimableQuery) -> int | None:
    drivers: Iterable[Driver | None] = (None,) if query.drivers is None else query.drivers
    instants = [_next_of(connection, query, driver) for driver in drivers]
    return min((at_ms for at_ms in instants if at_ms is not None), default=None)


def due(connection: sqlite3.Connection, now_ms: int, limit: int) -> list[TaskKey]:
    rows = connection.execute(
        "SELECT tenant_id, task_id FROM tasks WHERE due_at_ms <= ? ORDER BY due_at_ms LIMIT ?",
        (now_ms, limit),
    )
    return [TaskKey(*row) for row in rows]


def next_due_ms(connection: sqlite3.Connection) -> int | None:
    (at_ms,) = connection.execute("SELECT min(due_at_ms) FROM tasks WHERE due_at_ms IS NOT NULL").fetchone()
    return None if at_ms is None else int(at_ms)


def list_tasks(
    connection: sqlite3.Connection, query: TaskQuery, after: PageMark | None, limit: int
) -> list[TaskRecord]:
    conditions, values = _conditions(query)
    if after is not None:
        conditions.append("(tasks.created_at_ms, tasks.task_id) < (?, ?)")
        values += [after.created_at_ms, after.task_id]
    rows = connection.execute(
        f"SELECT {RECORD_COLUMNS} FROM {RECORD_TABLES} WHERE {' AND '.join(conditions)} "
        "ORDER BY tasks.created_at_ms DESC, tasks.task_id DESC LIMIT ?",
        (*values, limit),
    )
    return [record_of(row)[1] for row in rows]


def pending_approvals(
    connection: sqlite3.Connection,
    tenant_id: str,
    actor_id: str | None,
    after: ApprovalMark | None,
    limit: int,
    now_ms: int,
) -> list[PendingApproval]:
    mark = (-1, "") if after is None else (after.expires_at_ms, after.approval_id)
    addressed, actor = ("", ()) if actor_id is None else (" AND actor_id = ?", (actor_id,))
    rows = connection.execute(
        "SELECT approval_id, id FROM approvals WHERE pending AND tenant_id = ? AND expires_at_ms > ?"
        f" AND (expires_at_ms, approval_id) > (?, ?){addressed} ORDER BY expires_at_ms, approval_id LIMIT ?",
        (tenant_id, now_ms, *mark, *actor, limit),
    ).fetchall()
    return [_pending(connection, approval_id, task) for approval_id, task in rows]


def task_of_approval(connection: sqlite3.Connection, tenant_id: str, approval_id: str) -> TaskRecord | None:
    row = connection.execute(
        "SELECT id FROM approvals WHERE tenant_id = ? AND approval_id = ?", (tenant_id, approval_id)
    ).fetchone()
    return None if row is None else _records(connection, row)[0]


def unknown_actions(
    connection: sqlite3.Connection, tenant_id: str, after: UnknownMark | None, limit: int
) -> list[UnknownAction]:
    mark = (-1, "", "") if after is None else (after.since_ms, after.task_id, after.action_id)
    rows = connection.execute(
        "SELECT id, action_id FROM unknown_actions WHERE tenant_id = ?"
        " AND (since_ms, task_id, action_id) > (?, ?, ?) ORDER BY since_ms, task_id, action_id LIMIT ?",
        (tenant_id, *mark, limit),
    ).fetchall()
    found = [(_records(connection, [task])[0], action_id) for task, action_id in rows]
    return [UnknownAction(record, record.actions[action_id]) for record, action_id in found]


def held(connection: sqlite3.Connection, tenant_id: str, worker_id: str, now_ms: int) -> list[TaskRecord]:
    rows = connection.execute(
        "SELECT id FROM tasks WHERE tenant_id = ? AND lease_worker = ? AND lease_expires_at_ms > ?",
        (tenant_id, worker_id, now_ms),
    ).fetchall()
    return _records(connection, [task for (task,) in rows])


def granted(
    connection: sqlite3.Connection, tenant_id: str, worker_id: str, claim_id: str, now_ms: int
) -> TaskKey | None:
    known = connection.execute(
        "SELECT task_id FROM claims WHERE tenant_id = ? AND worker_id = ? AND claim_id = ?",
        (tenant_id, worker_id, claim_id),
    ).fetchone()
    if known is not None:
        return TaskKey(tenant_id, known[0])
    # Leases alone: this is asked with every claim, of workers that may hold many tasks.
    rows = connection.execute(
        "SELECT task_id, lease FROM tasks"
        " WHERE tenant_id = ? AND lease_worker = ? AND lease_expires_at_ms > ?",
        (tenant_id, worker_id, now_ms),
    )
    return next(
        (TaskKey(tenant_id, task) for task, lease in rows if decode_lease(lease).claim_id == claim_id), None
    )


def changes(connection: sqlite3.Connection, tenant_id: str, after: int, limit: int) -> ChangePage:
    rows = connection.execute(
        "SELECT position, id FROM tasks WHERE tenant_id = ? AND position > ? ORDER BY position LIMIT ?",
        (tenant_id, after, limit),
    ).fetchall()
    records = _records(connection, [task for _, task in rows])
    positions = [position for position, _ in rows]
    return ChangePage(tuple(zip(positions, records, strict=True)), meta(connection, "position"))


def backlog(connection: sqlite3.Connection, tenant_id: str, now_ms: int) -> Backlog:
    """Each number with the oldest instant behind it."""
    claimable_tasks, oldest_claimable_ms = connection.execute(
        "SELECT count(*), min(claimable_at_ms) FROM tasks"
        " WHERE tenant_id = ? AND queue = 'work' AND claimable_at_ms <= ?",
        (tenant_id, now_ms),
    ).fetchone()
    (leased,) = connection.execute(
        "SELECT count(*) FROM tasks WHERE tenant_id = ? AND lease_worker IS NOT NULL"
        " AND lease_expires_at_ms > ?",
        (tenant_id, now_ms),
    ).fetchone()
    unknown, oldest_unknown_ms = connection.execute(
        "SELECT count(*), min(since_ms) FROM unknown_actions WHERE tenant_id = ?", (tenant_id,)
    ).fetchone()
    pending, oldest_pending_ms = connection.execute(
        "SELECT count(*), min(created_at_ms) FROM approvals"
        " WHERE pending AND tenant_id = ? AND expires_at_ms > ?",
        (tenant_id, now_ms),
    ).fetchone()
    return Backlog(
        claimable_tasks,
        oldest_claimable_ms,
        leased,
        unknown,
        oldest_unknown_ms,
        pending,
        oldest_pending_ms,
    )


def purgeable_keys(
    connection: sqlite3.Connection,
    tenant_id: str,
    before_ms: int,
    limit: int,
    states: frozenset[TaskState],
) -> list[TaskKey]:
    ended = (
        connection.execute(
            "SELECT updated_at_ms, task_id FROM tasks WHERE tenant_id = ? AND state = ? AND updated_at_ms < ?"
            f" AND state IN ({_ENDED}) ORDER BY updated_at_ms LIMIT ?",
            (tenant_id, state, before_ms, limit),
        )
        for state in states
    )
    oldest = heapq.nsmallest(limit, (row for rows in ended for row in rows))
    return [TaskKey(tenant_id, task_id) for _, task_id in oldest]


def referenced(connection: sqlite3.Connection, blob_keys: Sequence[str]) -> frozenset[str]:
    found = (
        connection.execute("SELECT 1 FROM artifact_blobs WHERE blob_key = ?", (key,)).fetchone() and key
        for key in blob_keys
    )
    return frozenset(key for key in found if key)


def counts(connection: sqlite3.Connection) -> list[StateCount]:
    rows = connection.execute(
        "SELECT tenant_id, state, tasks FROM state_counts WHERE tasks > 0 ORDER BY tenant_id, state"
    )
    return [StateCount(tenant, TaskState(state), tasks) for tenant, state, tasks in rows]


def _waiting(
    connection: sqlite3.Connection, query: ClaimableQuery, driver: Driver | None, now_ms: int
) -> Iterable[tuple[int, str, str | None, int | None]]:
    chosen, values = _of_driver(driver)
    return connection.execute(
        "SELECT claimable_at_ms, task_id, driver_id, driver_version FROM tasks"
        f" WHERE tenant_id = ? AND queue = ?{chosen} AND claimable_at_ms <= ?"
        " ORDER BY claimable_at_ms, task_id LIMIT ?",
        (query.tenant_id, query.queue, *values, now_ms, query.limit),
    )


def _candidate(
    tenant_id: str, _at_ms: int, task_id: str, driver_id: str | None, version: int | None
) -> Candidate:
    driver = None if driver_id is None or version is None else Driver(driver_id, version)
    return Candidate(TaskKey(tenant_id, task_id), driver)


def _next_of(connection: sqlite3.Connection, query: ClaimableQuery, driver: Driver | None) -> int | None:
    chosen, values = _of_driver(driver)
    row = connection.execute(
        f"SELECT claimable_at_ms FROM tasks WHERE tenant_id = ? AND queue = ?{chosen}"
        " ORDER BY claimable_at_ms LIMIT 1",
        (query.tenant_id, query.queue, *values),
    ).fetchone()
    return None if row is None else int(row[0])


def _of_driver(driver: Driver | None) -> tuple[str, tuple[object, ...]]:
    if driver is None:
        return "", ()
    return " AND driver_id = ? AND driver_version = ?", (driver.id, driver.version)


def _records(connection: sqlite3.Connection, tasks: Iterable[int]) -> list[TaskRecord]:
    statement = f"SELECT {RECORD_COLUMNS} FROM {RECORD_TABLES} WHERE tasks.id = ?"
    rows = (connection.execute(statement, (task,)).fetchone() for task in tasks)
    return [record_of(row)[1] for row in rows if row is not None]


def _pending(connection: sqlite3.Connection, approval_id: str, task: int) -> PendingApproval:
    (record,) = _records(connection, [task])
    approval = record.approvals[approval_id]
    return PendingApproval(record.key, approval, record.actions[approval.action_id])


def _conditions(query: TaskQuery) -> tuple[list[str], list[object]]:
    conditions, values = ["tasks.tenant_id = ?"], [query.tenant_id]
    filters: tuple[tuple[str, object], ...] = (
        ("tasks.actor_id = ?", query.actor_id),
        ("tasks.session_id = ?", query.session_id),
        ("tasks.root_run_id = ?", query.root_run_id),
        ("tasks.driver_id = ?", query.driver_id),
        ("tasks.created_at_ms >= ?", query.created_from_ms),
        ("tasks.created_at_ms < ?", query.created_before_ms),
        ("tasks.updated_at_ms >= ?", query.updated_from_ms),
        ("tasks.updated_at_ms < ?", query.updated_before_ms),
        ("tasks.queue = ?", query.queue),
    )
    wanted: list[object] = list(values)
    for condition, value in filters:
        if value is not None:
            conditions.append(condition)
            wanted.append(value)
    if query.driver_id is not None and query.driver_version:
        conditions.append("tasks.driver_version = ?")
        wanted.append(query.driver_version)
    if query.states:
        conditions.append(f"tasks.state IN ({', '.join('?' * len(query.states))})")
        wanted += sorted(query.states)
    return conditions, wanted
