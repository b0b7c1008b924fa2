"""The tables of the SQLite store, and the way from each version of them to the next."""

import sqlite3
from typing import Final

from durable_service.store.base import StoreFault, StoreUnavailable
from durable_service.store.sqlite_file import APPLICATION_ID

# What is small and changes often stands apart from what is large: a renewal writes one short row.
_FIRST: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('last_now_ms', 0), ('position', 0), ('incarnation', abs(random()));

CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    tenant_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    root_run_id TEXT NOT NULL,
    driver_id TEXT,
    driver_version INTEGER,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    state TEXT NOT NULL,
    queue TEXT,
    claimable_at_ms INTEGER,
    due_at_ms INTEGER,
    last_sequence INTEGER NOT NULL,
    position INTEGER NOT NULL,
    lease_worker TEXT,
    lease_expires_at_ms INTEGER,
    lease BLOB
);
CREATE UNIQUE INDEX tasks_by_key ON tasks (tenant_id, task_id);
CREATE INDEX tasks_by_age ON tasks (tenant_id, created_at_ms, task_id);
CREATE INDEX tasks_by_queue ON tasks (tenant_id, queue, claimable_at_ms, task_id) WHERE queue IS NOT NULL;
CREATE INDEX tasks_by_driver
    ON tasks (tenant_id, queue, driver_id, driver_version, claimable_at_ms, task_id) WHERE queue IS NOT NULL;
CREATE INDEX tasks_by_due ON tasks (due_at_ms) WHERE due_at_ms IS NOT NULL;
CREATE INDEX tasks_by_position ON tasks (tenant_id, position);
CREATE INDEX tasks_by_worker ON tasks (tenant_id, lease_worker) WHERE lease_worker IS NOT NULL;
CREATE INDEX tasks_by_end ON tasks (tenant_id, updated_at_ms)
    WHERE state IN ('completed', 'failed', 'canceled', 'stopped');

CREATE TABLE definitions (id INTEGER PRIMARY KEY, body BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE progress (id INTEGER PRIMARY KEY, body BLOB NOT NULL, checksum INTEGER NOT NULL);

CREATE TABLE events (
    id INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    event_id TEXT,
    body BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
CREATE UNIQUE INDEX events_by_sequence ON events (id, sequence);
CREATE UNIQUE INDEX events_by_event_id ON events (id, event_id) WHERE event_id IS NOT NULL;

CREATE TABLE approvals (
    id INTEGER NOT NULL,
    approval_id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    PRIMARY KEY (id, approval_id)
) WITHOUT ROWID;
CREATE INDEX approvals_by_name ON approvals (tenant_id, approval_id);
CREATE INDEX approvals_by_expiry ON approvals (tenant_id, expires_at_ms, approval_id) WHERE pending;
CREATE INDEX approvals_by_actor ON approvals (tenant_id, actor_id, expires_at_ms, approval_id) WHERE pending;

CREATE TABLE unknown_actions (
    id INTEGER NOT NULL,
    action_id TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    PRIMARY KEY (id, action_id)
) WITHOUT ROWID;
CREATE INDEX unknown_by_age ON unknown_actions (tenant_id, since_ms, task_id, action_id);

CREATE TABLE artifact_blobs (
    blob_key TEXT NOT NULL, id INTEGER NOT NULL, PRIMARY KEY (blob_key, id)
) WITHOUT ROWID;
CREATE INDEX artifact_blobs_by_task ON artifact_blobs (id);

CREATE TABLE state_counts (
    tenant_id TEXT NOT NULL, state TEXT NOT NULL, tasks INTEGER NOT NULL, PRIMARY KEY (tenant_id, state)
) WITHOUT ROWID;
CREATE TABLE tombstones (
    tenant_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    purged_at_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, task_id)
) WITHOUT ROWID;
CREATE TABLE nonces (
    caller TEXT NOT NULL, nonce TEXT NOT NULL, expires_at_ms INTEGER NOT NULL, PRIMARY KEY (caller, nonce)
) WITHOUT ROWID;
CREATE INDEX nonces_by_expiry ON nonces (expires_at_ms);
"""

# Claims are repeated by their id alone, also when their lease is over and the process is another.
_CLAIMS: Final = """
CREATE TABLE claims (
    tenant_id TEXT NOT NULL,
    worker_id TEXT NOT NULL,
    claim_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    PRIMARY KEY (tenant_id, worker_id, claim_id)
) WITHOUT ROWID;
"""

# What the bounds of journals go by, in front of what is large; and ended tasks by how they ended.
_RETENTION: Final = """
CREATE TABLE journal (
    id INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    event_id TEXT,
    at_ms INTEGER NOT NULL,
    data_bytes INTEGER NOT NULL,
    bytes_before INTEGER NOT NULL,
    body BLOB NOT NULL,
    checksum INTEGER NOT NULL
);
INSERT INTO journal
    SELECT id, sequence, event_id,
        -- A damaged entry is taken for as old as the one before it: no journal gets a hole by its age.
        max(at_ms) OVER (PARTITION BY id ORDER BY sequence),
        data_bytes,
        sum(data_bytes) OVER (PARTITION BY id ORDER BY sequence) - data_bytes,
        body, checksum
    FROM (
        SELECT id, sequence, event_id, body, checksum,
            coalesce(json_extract(entry, '$.event.at_ms'), 0) AS at_ms,
            coalesce(length(CAST(json_extract(entry, '$.event.data') AS BLOB)), 0) AS data_bytes
        FROM (
            SELECT *, CASE WHEN json_valid(CAST(body AS TEXT)) THEN CAST(body AS TEXT) END AS entry
            FROM events
        )
    )
    ORDER BY id, sequence;
DROP TABLE events;
ALTER TABLE journal RENAME TO events;
CREATE UNIQUE INDEX events_by_sequence ON events (id, sequence);
CREATE UNIQUE INDEX events_by_event_id ON events (id, event_id) WHERE event_id IS NOT NULL;
CREATE INDEX events_by_age ON events (at_ms);

DROP INDEX tasks_by_end;
CREATE INDEX tasks_by_end ON tasks (tenant_id, state, updated_at_ms)
    WHERE state IN ('completed', 'failed', 'canceled', 'stopped');
"""

# In order; a script is never changed once it was released, another is appended.
MIGRATIONS: Final = (_FIRST, _CLAIMS, _RETENTION)


def migrate(connection: sqlite3.Connection) -> None:
    """Brings the tables to this version, each step in a transaction of its own.

    Raises:
        StoreUnavailable: the file was written by a newer version.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise StoreUnavailable(
            StoreFault.NEWER_FORMAT,
            f"the store has schema version {version}, and this version knows {len(MIGRATIONS)}: "
            "upgrade the service",
        )
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        marks = f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {number};"
        connection.executescript(f"BEGIN IMMEDIATE;\n{script}\n{marks}\nCOMMIT;")
