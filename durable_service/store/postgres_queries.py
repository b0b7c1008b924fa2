"""Reading questions to a PostgreSQL store: each is one statement, and so sees one state of the database.

The time of the server is asked in a sub-select of its own: then it is asked once, and an index can be used.
"""
# ruff: noqa: S608 - statements are put together from texts that stand in this file

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from durable_service.core.definition import Driver, TaskKey
from durable_service.store.base import (
    ApprovalMark,
    Candidate,
    ClaimableQuery,
    PageMark,
    TaskQuery,
    UnknownMark,
)
from durable_service.store.postgres_rows import RECORD_COLUMNS, RECORD_TABLES, seen

Question: TypeAlias = tuple[str, dict[str, object]]

_NOW: Final = "(SELECT durable_now_ms(%(seen_ms)s))"
# In the very words of the index over ended tasks, or it is not used.
_ENDED: Final = "'completed', 'failed', 'canceled', 'stopped'"

NOW: Final = "SELECT durable_now_ms(%(seen_ms)s)"
NOTE: Final = "SELECT durable_note_ms(%(seen_ms)s, %(every_ms)s)"
DUE: Final = f"""
SELECT tenant_id, task_id FROM durable_tasks
WHERE due_at_ms <= {_NOW} ORDER BY due_at_ms, id LIMIT %(limit)s
"""
NEXT_DUE: Final = "SELECT min(due_at_ms) FROM durable_tasks WHERE due_at_ms IS NOT NULL"
TASK_OF_APPROVAL: Final = f"""
SELECT {RECORD_COLUMNS} FROM {RECORD_TABLES} WHERE task.id = (
    SELECT id FROM durable_approvals WHERE tenant_id = %(tenant_id)s AND approval_id = %(approval_id)s LIMIT 1
)
"""
HELD: Final = f"""
SELECT {RECORD_COLUMNS} FROM {RECORD_TABLES}
WHERE task.tenant_id = %(tenant_id)s AND task.lease_worker = %(worker_id)s
    AND task.lease_expires_at_ms > {_NOW}
"""
# Claims to recover are known by their leases alone.
GRANTED: Final = f"""
SELECT task_id, NULL::bytea FROM durable_claims
WHERE tenant_id = %(tenant_id)s AND worker_id = %(worker_id)s AND claim_id = %(claim_id)s
UNION ALL
SELECT task_id, lease FROM durable_tasks
WHERE tenant_id = %(tenant_id)s AND lease_worker = %(worker_id)s AND lease_expires_at_ms > {_NOW}
"""
PURGEABLE: Final = f"""
SELECT found.tenant_id, found.task_id FROM unnest(%(states)s::text[]) AS wanted (state), LATERAL (
    SELECT tenant_id, task_id, updated_at_ms FROM durable_tasks
    WHERE tenant_id = %(tenant_id)s AND state = wanted.state AND updated_at_ms < %(before_ms)s
        AND state IN ({_ENDED})
    ORDER BY updated_at_ms LIMIT %(limit)s
) AS found
ORDER BY found.updated_at_ms, found.task_id LIMIT %(limit)s
"""
TRIM_EVENTS: Final = f"""
DELETE FROM durable_events WHERE (id, sequence) IN (
    SELECT id, sequence FROM durable_events WHERE at_ms <= {_NOW} - %(age_ms)s
    ORDER BY at_ms, id, sequence LIMIT %(limit)s FOR UPDATE SKIP LOCKED
) RETURNING 1
"""
REFERENCED: Final = """
SELECT asked.key FROM unnest(%(keys)s::text[]) AS asked (key)
WHERE EXISTS (SELECT FROM durable_artifact_blobs AS blob WHERE blob.blob_key = asked.key)
"""
COUNTS: Final = """
SELECT tenant_id, state, count(*) FROM durable_tasks GROUP BY tenant_id, state ORDER BY tenant_id, state
"""
BACKLOG: Final = """
WITH clock AS MATERIALIZED (SELECT durable_now_ms(%(seen_ms)s) AS now_ms)
SELECT claimable.*, leased.*, unknown.*, pending.* FROM
    (SELECT count(*), min(claimable_at_ms) FROM durable_tasks WHERE tenant_id = %(tenant_id)s
        AND queue = 'work' AND claimable_at_ms <= (SELECT now_ms FROM clock)) AS claimable,
    (SELECT count(*) FROM durable_tasks WHERE tenant_id = %(tenant_id)s
        AND lease_worker IS NOT NULL AND lease_expires_at_ms > (SELECT now_ms FROM clock)) AS leased,
    (SELECT count(*), min(since_ms) FROM durable_unknown_actions
        WHERE tenant_id = %(tenant_id)s) AS unknown,
    (SELECT count(*), min(created_at_ms) FROM durable_approvals WHERE pending
        AND tenant_id = %(tenant_id)s AND expires_at_ms > (SELECT now_ms FROM clock)) AS pending
"""
EVENTS: Final = """
SELECT task.last_sequence,
    (SELECT min(sequence) FROM durable_events AS kept WHERE kept.id = task.id),
    ARRAY(
        SELECT event.body FROM durable_events AS event
        WHERE event.id = task.id AND event.sequence > %(after)s ORDER BY event.sequence LIMIT %(limit)s
    )
FROM durable_tasks AS task WHERE task.tenant_id = %(tenant_id)s AND task.task_id = %(task_id)s
"""
# Up to the horizon alone: what commits later than it is seen has a later position. The last column tells
# whether there is more beyond.
CHANGES: Final = f"""
WITH {seen("SELECT max(position) FROM durable_tasks WHERE tenant_id = %(tenant_id)s")}
SELECT seen.reached, changed.*, coalesce(seen.latest >= greatest(seen.horizon, %(after)s + 1), false)
FROM seen LEFT JOIN LATERAL (
    SELECT task.position, {RECORD_COLUMNS} FROM {RECORD_TABLES}
    WHERE task.tenant_id = %(tenant_id)s AND task.position > %(after)s
        AND task.position < (SELECT horizon FROM seen)
    ORDER BY task.position LIMIT %(limit)s
) AS changed ON true
"""
NONCE: Final = """
INSERT INTO durable_nonces AS known (caller, nonce, expires_at_ms)
SELECT %(caller)s, %(nonce)s, clock.now_ms + %(ttl_ms)s
FROM (SELECT durable_now_ms(%(seen_ms)s) AS now_ms) AS clock
ON CONFLICT (caller, nonce) DO UPDATE SET expires_at_ms = excluded.expires_at_ms
    WHERE known.expires_at_ms <= excluded.expires_at_ms - %(ttl_ms)s
RETURNING 1
"""
FORGET_NONCES: Final = f"""
DELETE FROM durable_nonces WHERE (caller, nonce) IN (
    SELECT caller, nonce FROM durable_nonces WHERE expires_at_ms <= {_NOW}
    ORDER BY expires_at_ms LIMIT 5000 FOR UPDATE SKIP LOCKED
)
"""
_WAITING: Final = """
SELECT claimable_at_ms, task_id, driver_id, driver_version FROM durable_tasks
WHERE tenant_id = %(tenant_id)s AND queue = %(queue)s
"""
_OF_DRIVER: Final = " AND driver_id = wanted.id AND driver_version = wanted.version"
_DRIVERS: Final = "unnest(%(drivers)s::text[], %(versions)s::bigint[]) AS wanted (id, version)"
_READY: Final = f" AND claimable_at_ms <= {_NOW} ORDER BY claimable_at_ms, task_id LIMIT %(limit)s"
_FIRST: Final = " ORDER BY claimable_at_ms, task_id LIMIT 1"


def claimable(query: ClaimableQuery) -> Question:
    if query.drivers is None:
        return _WAITING + _READY, {**_queue(query), "limit": query.limit}
    statement = (
        f"SELECT found.* FROM {_DRIVERS}, LATERAL ({_WAITING}{_OF_DRIVER}{_READY}) AS found"
        " ORDER BY claimable_at_ms, task_id LIMIT %(limit)s"
    )
    return statement, {**_queue(query), **_wanted(query.drivers), "limit": query.limit}


def next_claimable(query: ClaimableQuery) -> Question:
    if query.drivers is None:
        return _WAITING + _FIRST, _queue(query)
    statement = (
        f"SELECT found.* FROM {_DRIVERS}, LATERAL ({_WAITING}{_OF_DRIVER}{_FIRST}) AS found"
        " ORDER BY claimable_at_ms LIMIT 1"
    )
    return statement, {**_queue(query), **_wanted(query.drivers)}


def candidate(tenant_id: str, row: Sequence[Any]) -> Candidate:
    _, task_id, driver_id, version = row
    driver = None if driver_id is None else Driver(driver_id, version)
    return Candidate(TaskKey(tenant_id, task_id), driver)


def list_tasks(query: TaskQuery, after: PageMark | None, limit: int) -> Question:
    conditions, values = _conditions(query)
    if after is not None:
        conditions.append("(task.created_at_ms, task.task_id) < (%(mark_ms)s, %(mark_id)s)")
        values |= {"mark_ms": after.created_at_ms, "mark_id": after.task_id}
    statement = (
        f"SELECT {RECORD_COLUMNS} FROM {RECORD_TABLES} WHERE {' AND '.join(conditions)}"
        " ORDER BY task.created_at_ms DESC, task.task_id DESC LIMIT %(limit)s"
    )
    return statement, {**values, "limit": limit}


def pending_approvals(
    tenant_id: str, actor_id: str | None, after: ApprovalMark | None, limit: int
) -> Question:
    mark = ApprovalMark(-1, "") if after is None else after
    addressed = "" if actor_id is None else " AND approval.actor_id = %(actor_id)s"
    statement = f"""
        SELECT approval.approval_id, {RECORD_COLUMNS}
        FROM durable_approvals AS approval JOIN {RECORD_TABLES} ON task.id = approval.id
        WHERE approval.pending AND approval.tenant_id = %(tenant_id)s AND approval.expires_at_ms > {_NOW}
            AND (approval.expires_at_ms, approval.approval_id) > (%(mark_ms)s, %(mark_id)s){addressed}
        ORDER BY approval.expires_at_ms, approval.approval_id LIMIT %(limit)s
    """
    values: dict[str, object] = {"tenant_id": tenant_id, "limit": limit}
    values |= {"mark_ms": mark.expires_at_ms, "mark_id": mark.approval_id}
    return statement, values if actor_id is None else {**values, "actor_id": actor_id}


def unknown_actions(tenant_id: str, after: UnknownMark | None, limit: int) -> Question:
    mark = UnknownMark(-1, "", "") if after is None else after
    statement = f"""
        SELECT unknown.action_id, {RECORD_COLUMNS}
        FROM durable_unknown_actions AS unknown JOIN {RECORD_TABLES} ON task.id = unknown.id
        WHERE unknown.tenant_id = %(tenant_id)s
            AND (unknown.since_ms, unknown.task_id, unknown.action_id)
                > (%(mark_ms)s, %(mark_task)s, %(mark_action)s)
        ORDER BY unknown.since_ms, unknown.task_id, unknown.action_id LIMIT %(limit)s
    """
    return statement, {
        "tenant_id": tenant_id,
        "limit": limit,
        "mark_ms": mark.since_ms,
        "mark_task": mark.task_id,
        "mark_action": mark.action_id,
    }


def _queue(query: ClaimableQuery) -> dict[str, object]:
    return {"tenant_id": query.tenant_id, "queue": query.queue.value}


def _wanted(drivers: frozenset[Driver]) -> dict[str, object]:
    ordered = sorted(drivers, key=lambda driver: (driver.id, driver.version))
    return {
        "drivers": [driver.id for driver in ordered],
        "versions": [driver.version for driver in ordered],
    }


def _conditions(query: TaskQuery) -> tuple[list[str], dict[str, object]]:
    filters: tuple[tuple[str, str, object], ...] = (
        ("tenant_id", "=", query.tenant_id),
        ("actor_id", "=", query.actor_id),
        ("session_id", "=", query.session_id),
        ("root_run_id", "=", query.root_run_id),
        ("driver_id", "=", query.driver_id),
        ("driver_version", "=", query.driver_version or None if query.driver_id is not None else None),
        ("created_at_ms", ">=", query.created_from_ms),
        ("created_at_ms", "<", query.created_before_ms),
        ("updated_at_ms", ">=", query.updated_from_ms),
        ("updated_at_ms", "<", query.updated_before_ms),
        ("queue", "=", None if query.queue is None else query.queue.value),
    )
    conditions, values = [], {}
    for number, (column, relation, value) in enumerate(filters):
        if value is not None:
            conditions.append(f"task.{column} {relation} %(value_{number})s")
            values[f"value_{number}"] = value
    if query.states:
        conditions.append("task.state = ANY(%(states)s::text[])")
        values["states"] = sorted(state.value for state in query.states)
    return conditions, values
