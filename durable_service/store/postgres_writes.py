"""What one commit does to the rows of a task, as a single statement.

A statement is a transaction of its own, so a write is one round trip and holds its locks no longer than
that. Its first part writes the row of the task if that has still the version that was read; all other parts
take the task from it, and do nothing when there is none.
"""
# ruff: noqa: S608 - statements are put together from texts that stand in this file

from collections.abc import Sequence
from typing import Final

from durable_service.core.model import TaskEvent, TaskRecord, Tombstone
from durable_service.store.base import StoreLimits
from durable_service.store.indexed_parts import (
    ADMITTED,
    PLACES,
    admitted_values,
    place_values,
    undecided_approvals,
    unknown_actions,
)
from durable_service.store.postgres_journal import add_events
from durable_service.store.postgres_rows import Stored
from durable_service.store.postgres_statement import Statement, Write
from durable_service.store.record_document import (
    encode_definition,
    encode_progress,
)

_REVISED: Final = ("updated_at_ms", "state", "last_sequence", "writer")
_POSITION: Final = "pg_current_xact_id()::text::bigint"
_SET_PLACES: Final = ", ".join(f"{name} = %({name})s" for name in PLACES)
_SET_REVISED: Final = ", ".join(f"{name} = %({name})s" for name in _REVISED)
_INSERTED: Final = (*ADMITTED, *_REVISED, *PLACES)
_INSERT: Final = f"""
INSERT INTO durable_tasks ({", ".join(_INSERTED)}, position)
SELECT {", ".join(f"%({name})s" for name in _INSERTED)}, {_POSITION}
WHERE NOT EXISTS (
    SELECT FROM durable_tombstones WHERE tenant_id = %(tenant_id)s AND task_id = %(task_id)s
)
ON CONFLICT (tenant_id, task_id) DO NOTHING RETURNING id
"""
_UNCHANGED: Final = "WHERE id = %(id)s AND version = %(version)s"
# A holder's lease has to last until the write, by the clock of the server at that moment.
_STILL_HELD: Final = " AND lease_expires_at_ms > durable_now_ms(%(seen_ms)s)"
_REVISE: Final = (
    f"UPDATE durable_tasks SET {_SET_REVISED}, {_SET_PLACES}, position = {_POSITION}, version = version + 1 "
)
_RENEW: Final = f"UPDATE durable_tasks SET {_SET_PLACES}, version = version + 1 "
_DELETE: Final = f"DELETE FROM durable_tasks {_UNCHANGED} RETURNING id"
_DEPENDENT: Final = (
    "durable_definitions",
    "durable_progress",
    "durable_events",
    "durable_approvals",
    "durable_unknown_actions",
    "durable_artifact_blobs",
)


def insertion(record: TaskRecord, events: Sequence[TaskEvent], writer: int, limits: StoreLimits) -> Write:
    """Adds a task unless one of its name is or was there."""
    values = dict(zip(ADMITTED, admitted_values(record), strict=True))
    statement = Statement(_INSERT, {**values, **_revised(record, writer), **_places(record)})
    statement.add(
        "INSERT INTO durable_definitions (id, body) SELECT id, %(definition)s FROM task",
        definition=encode_definition(record),
    )
    statement.add(
        "INSERT INTO durable_progress (id, body) SELECT id, %(progress)s FROM task",
        progress=encode_progress(record),
    )
    add_events(statement, None, events, limits)
    return statement.write()


def replacement(
    before: Stored, record: TaskRecord, events: Sequence[TaskEvent], writer: int, limits: StoreLimits
) -> Write:
    """Writes the next revision of a task, or the same one with another end of its lease."""
    old = before.record
    named: dict[str, object] = {"id": before.id, "version": before.version, **_places(record)}
    if record.revision == old.revision:
        return Statement(f"{_RENEW}{_UNCHANGED} RETURNING id", named).write()
    statement = Statement(f"{_REVISE}{_UNCHANGED} RETURNING id", {**named, **_revised(record, writer)})
    statement.add(
        "UPDATE durable_progress SET body = %(progress)s FROM task WHERE durable_progress.id = task.id",
        progress=encode_progress(record),
    )
    add_events(statement, before.id, events, limits)
    _add_claims(statement, old, record)
    _add_approvals(statement, old, record)
    _add_unknown_actions(statement, old, record)
    _add_artifacts(statement, old, record)
    return statement.write()


def while_held(write: Write, seen_ms: int) -> Write:
    """The write, if the lease that was there lasts until it happens."""
    statement, values = write
    return statement.replace(_UNCHANGED, _UNCHANGED + _STILL_HELD, 1), {**values, "seen_ms": seen_ms}


def burial(stored: Stored, tombstone: Tombstone) -> Write:
    """Removes a task and keeps its tombstone."""
    record = stored.record
    key = record.key
    statement = Statement(_DELETE, {"id": stored.id, "version": stored.version})
    for table in _DEPENDENT:
        statement.add(f"DELETE FROM {table} AS rows USING task WHERE rows.id = task.id")
    statement.add(
        "DELETE FROM durable_claims AS claim USING task,"
        " unnest(%(workers)s::text[], %(claims)s::text[]) AS made (worker_id, claim_id)"
        " WHERE claim.tenant_id = %(tenant_id)s AND claim.worker_id = made.worker_id"
        " AND claim.claim_id = made.claim_id AND claim.task_id = %(task_id)s",
        tenant_id=key.tenant_id,
        task_id=key.task_id,
        workers=[attempt.worker_id for attempt in record.attempts],
        claims=[attempt.id for attempt in record.attempts],
    )
    statement.add(
        "INSERT INTO durable_tombstones (tenant_id, task_id, digest, purged_at_ms)"
        " SELECT %(tenant_id)s, %(task_id)s, %(digest)s, %(purged_at_ms)s FROM task ON CONFLICT DO NOTHING",
        digest=tombstone.digest,
        purged_at_ms=tombstone.purged_at_ms,
    )
    return statement.write()


def _revised(record: TaskRecord, writer: int) -> dict[str, object]:
    return {
        "updated_at_ms": record.updated_at_ms,
        "state": record.state.value,
        "last_sequence": record.last_sequence,
        "writer": writer,
    }


def _places(record: TaskRecord) -> dict[str, object]:
    """Where the task waits and who holds it."""
    return dict(zip(PLACES, place_values(record), strict=True))


def _add_claims(statement: Statement, before: TaskRecord, after: TaskRecord) -> None:
    made = {(attempt.worker_id, attempt.id) for attempt in after.attempts[len(before.attempts) :]}
    if made:
        workers, claims = zip(*sorted(made), strict=True)
        statement.add(
            "INSERT INTO durable_claims (tenant_id, worker_id, claim_id, task_id)"
            " SELECT %(tenant_id)s, made.worker_id, made.claim_id, %(task_id)s"
            # One that was granted another task since it was looked for makes all of the write fail.
            " FROM task, unnest(%(workers)s::text[], %(claims)s::text[]) AS made (worker_id, claim_id)",
            tenant_id=after.key.tenant_id,
            task_id=after.key.task_id,
            workers=list(workers),
            claims=list(claims),
        )


def _add_approvals(statement: Statement, before: TaskRecord, after: TaskRecord) -> None:
    if after.approvals is before.approvals and after.state is before.state:
        return
    pending = undecided_approvals(after)
    asked = [after.approvals[name] for name in sorted(after.approvals.keys() - before.approvals.keys())]
    if asked:
        statement.add(
            "INSERT INTO durable_approvals"
            " (id, tenant_id, approval_id, actor_id, created_at_ms, expires_at_ms, pending)"
            " SELECT task.id, %(tenant_id)s, asked.* FROM task, unnest(%(approval_ids)s::text[],"
            " %(approvers)s::text[], %(asked_ms)s::bigint[], %(expiries_ms)s::bigint[],"
            " %(pending)s::boolean[]) AS asked",
            tenant_id=after.key.tenant_id,
            approval_ids=[approval.id for approval in asked],
            approvers=[approval.actor_id for approval in asked],
            asked_ms=[approval.created_at_ms for approval in asked],
            expiries_ms=[approval.expires_at_ms for approval in asked],
            pending=[approval.id in pending for approval in asked],
        )
    moved = sorted((undecided_approvals(before) ^ pending) & before.approvals.keys())
    if moved:
        statement.add(
            "UPDATE durable_approvals AS approval SET pending = moved.pending FROM task,"
            " unnest(%(moved)s::text[], %(moved_to)s::boolean[]) AS moved (approval_id, pending)"
            " WHERE approval.id = task.id AND approval.approval_id = moved.approval_id",
            moved=moved,
            moved_to=[name in pending for name in moved],
        )


def _add_unknown_actions(statement: Statement, before: TaskRecord, after: TaskRecord) -> None:
    if after.actions is before.actions:
        return
    old, new = unknown_actions(before), unknown_actions(after)
    if old - new:
        statement.add(
            "DELETE FROM durable_unknown_actions AS known USING task"
            " WHERE known.id = task.id AND known.action_id = ANY(%(known)s::text[])",
            known=sorted(old - new),
        )
    if new - old:
        names = sorted(new - old)
        statement.add(
            "INSERT INTO durable_unknown_actions (id, tenant_id, task_id, action_id, since_ms)"
            " SELECT task.id, %(tenant_id)s, %(task_id)s, lost.* FROM task,"
            " unnest(%(lost)s::text[], %(lost_ms)s::bigint[]) AS lost",
            tenant_id=after.key.tenant_id,
            task_id=after.key.task_id,
            lost=names,
            lost_ms=[after.actions[name].updated_at_ms for name in names],
        )


def _add_artifacts(statement: Statement, before: TaskRecord, after: TaskRecord) -> None:
    names = after.artifacts.keys() - before.artifacts.keys()
    if names:
        statement.add(
            "INSERT INTO durable_artifact_blobs (blob_key, id)"
            " SELECT put.blob_key, task.id FROM task, unnest(%(blob_keys)s::text[]) AS put (blob_key)"
            " ON CONFLICT DO NOTHING",
            blob_keys=sorted({after.artifacts[name].blob_key for name in names}),
        )
