"""The tables of the PostgreSQL store, and the steps from each version of them to the next.

What is small and changes often stands apart from what is large: a renewal writes one short row. Documents are
bytes, stored outside their row and uncompressed; the database never has to understand them.
"""

from dataclasses import dataclass
from typing import Final

# The time of the server alone decides. It never goes back: when the server's clock is stepped back, or
# another server takes over whose clock is behind, time goes on from the latest instant that was noted, by an
# advance over that clock, which then shrinks by a tenth of the time that passes. Callers name the latest
# instant that they have seen, so that between two notes no process sees time going back.
_CLOCK: Final = """
CREATE TABLE durable_clock (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    floor_ms bigint NOT NULL,
    ahead_ms bigint NOT NULL
);
INSERT INTO durable_clock (floor_ms, ahead_ms) VALUES (0, 0);

CREATE FUNCTION durable_wall_ms() RETURNS bigint LANGUAGE sql VOLATILE
RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

CREATE FUNCTION durable_now_ms(seen_ms bigint) RETURNS bigint LANGUAGE sql VOLATILE
RETURN (SELECT greatest(seen_ms, floor_ms, durable_wall_ms() + ahead_ms) FROM durable_clock);

CREATE FUNCTION durable_note_ms(seen_ms bigint, every_ms bigint) RETURNS bigint LANGUAGE sql VOLATILE
BEGIN ATOMIC
    UPDATE durable_clock
    SET floor_ms = greatest(floor_ms, told.now_ms),
        ahead_ms = greatest(0, told.now_ms - told.wall_ms
            - least(1000, greatest(0, told.wall_ms + ahead_ms - floor_ms)) / 10)
    FROM (
        SELECT wall.wall_ms,
            greatest(seen_ms, noted.floor_ms, wall.wall_ms + noted.ahead_ms) AS now_ms
        FROM durable_clock AS noted, (SELECT durable_wall_ms() AS wall_ms) AS wall
    ) AS told
    WHERE told.now_ms >= floor_ms + every_ms OR told.wall_ms + ahead_ms < greatest(seen_ms, floor_ms);
    SELECT durable_now_ms(seen_ms);
END;
"""

_TASKS: Final = """
CREATE TABLE durable_tasks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    actor_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    root_run_id text COLLATE "C" NOT NULL,
    driver_id text COLLATE "C",
    driver_version bigint,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    state text COLLATE "C" NOT NULL,
    queue text COLLATE "C",
    claimable_at_ms bigint,
    due_at_ms bigint,
    last_sequence bigint NOT NULL,
    -- The transaction of the latest change, renewals aside: commits are found in its order.
    position bigint NOT NULL,
    -- The process that made it, which need not be told.
    writer bigint NOT NULL,
    -- Raised by every write, renewals too, which leave the revision.
    version bigint NOT NULL DEFAULT 1,
    lease_worker text COLLATE "C",
    lease_expires_at_ms bigint,
    lease bytea
);
CREATE UNIQUE INDEX durable_tasks_by_key ON durable_tasks (tenant_id, task_id);
CREATE INDEX durable_tasks_by_age ON durable_tasks (tenant_id, created_at_ms, task_id);
CREATE INDEX durable_tasks_by_queue ON durable_tasks (tenant_id, queue, claimable_at_ms, task_id)
    WHERE queue IS NOT NULL;
CREATE INDEX durable_tasks_by_driver
    ON durable_tasks (tenant_id, queue, driver_id, driver_version, claimable_at_ms, task_id)
    WHERE queue IS NOT NULL;
CREATE INDEX durable_tasks_by_due ON durable_tasks (due_at_ms) WHERE due_at_ms IS NOT NULL;
CREATE INDEX durable_tasks_by_position ON durable_tasks (position);
CREATE INDEX durable_tasks_by_change ON durable_tasks (tenant_id, position);
CREATE INDEX durable_tasks_by_worker ON durable_tasks (tenant_id, lease_worker, lease_expires_at_ms)
    WHERE lease_worker IS NOT NULL;
CREATE INDEX durable_tasks_by_state ON durable_tasks (tenant_id, state);
CREATE INDEX durable_tasks_by_end ON durable_tasks (tenant_id, state, updated_at_ms)
    WHERE state IN ('completed', 'failed', 'canceled', 'stopped');

CREATE TABLE durable_definitions (id bigint PRIMARY KEY, body bytea NOT NULL);
ALTER TABLE durable_definitions ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE durable_progress (id bigint PRIMARY KEY, body bytea NOT NULL);
ALTER TABLE durable_progress ALTER COLUMN body SET STORAGE EXTERNAL;
"""

_BESIDE_TASKS: Final = """
CREATE TABLE durable_events (
    id bigint NOT NULL,
    sequence bigint NOT NULL,
    event_id text COLLATE "C",
    at_ms bigint NOT NULL,
    data_bytes bigint NOT NULL,
    -- Of all entries that were kept when this one was written, and of those before them.
    bytes_before bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (id, sequence)
);
ALTER TABLE durable_events ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX durable_events_by_event_id ON durable_events (id, event_id) WHERE event_id IS NOT NULL;
CREATE INDEX durable_events_by_age ON durable_events (at_ms, id, sequence);

CREATE TABLE durable_approvals (
    id bigint NOT NULL,
    approval_id text COLLATE "C" NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    actor_id text COLLATE "C" NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    pending boolean NOT NULL,
    PRIMARY KEY (id, approval_id)
);
CREATE INDEX durable_approvals_by_name ON durable_approvals (tenant_id, approval_id);
CREATE INDEX durable_approvals_by_expiry ON durable_approvals (tenant_id, expires_at_ms, approval_id)
    WHERE pending;
CREATE INDEX durable_approvals_by_actor ON durable_approvals (tenant_id, actor_id, expires_at_ms, approval_id)
    WHERE pending;

CREATE TABLE durable_unknown_actions (
    id bigint NOT NULL,
    action_id text COLLATE "C" NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    since_ms bigint NOT NULL,
    PRIMARY KEY (id, action_id)
);
CREATE INDEX durable_unknown_by_age ON durable_unknown_actions (tenant_id, since_ms, task_id, action_id);

CREATE TABLE durable_artifact_blobs (
    blob_key text COLLATE "C" NOT NULL, id bigint NOT NULL, PRIMARY KEY (blob_key, id)
);
CREATE INDEX durable_artifact_blobs_by_task ON durable_artifact_blobs (id);

CREATE TABLE durable_claims (
    tenant_id text COLLATE "C" NOT NULL,
    worker_id text COLLATE "C" NOT NULL,
    claim_id text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, worker_id, claim_id)
);
CREATE TABLE durable_tombstones (
    tenant_id text COLLATE "C" NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    purged_at_ms bigint NOT NULL,
    PRIMARY KEY (tenant_id, task_id)
);
CREATE TABLE durable_nonces (
    caller text COLLATE "C" NOT NULL,
    nonce text COLLATE "C" NOT NULL,
    expires_at_ms bigint NOT NULL,
    PRIMARY KEY (caller, nonce)
);
CREATE INDEX durable_nonces_by_expiry ON durable_nonces (expires_at_ms);

CREATE TABLE durable_content (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    incarnation text COLLATE "C" NOT NULL
);
INSERT INTO durable_content (incarnation) VALUES (replace(gen_random_uuid()::text, '-', ''));
"""


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """The way from one version of the schema to the next, in two halves.

    Attributes:
        version: that it leads to; versions count from 1.
        pre: only adds, so that servers of the version before go on beside those of this one.
        post: removes what only older servers needed; applied when they are gone.
        serves_from: the oldest version of a server that can work after `pre`.
    """

    version: int
    pre: str
    post: str = ""
    serves_from: int = 1


# In order; a step is never changed once it was released, another is appended.
STEPS: Final = (SchemaStep(1, _CLOCK + _TASKS + _BESIDE_TASKS),)
