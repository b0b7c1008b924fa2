"""Rows read from a PostgreSQL store."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from durable_service.core.definition import TaskKey
from durable_service.core.model import TaskEvent, TaskRecord, Tombstone
from durable_service.store.record_document import decode_event, decode_record

# What `record_of` takes.
RECORD_COLUMNS: Final = "definition.body, progress.body, task.lease"
RECORD_TABLES: Final = (
    "durable_tasks AS task"
    " JOIN durable_definitions AS definition ON definition.id = task.id"
    " JOIN durable_progress AS progress ON progress.id = task.id"
)
_HORIZON: Final = "pg_snapshot_xmin(pg_current_snapshot())::text::bigint"


def seen(latest: str) -> str:
    """A part of a statement: how far the order of changes is known.

    Its `horizon` is the oldest transaction that may still commit: what was changed before it is all there,
    for good. `reached` is where a reader may go on when it has read up to there. It is no transaction beyond
    those that are known to be committed: numbers that were given out after them are given out once more when
    the server crashes, or when another one takes over, and a reader would miss what then gets them. The
    transaction that last noted the time is such a one, so that an idle reader is not left behind.

    Args:
        latest: a statement for the latest position of a change, which is another.
    """
    # Transactions are numbered by 64 bits, of which rows show the lower 32.
    noted = "horizon - ((horizon - noted + 2147483648) & 4294967295) + 2147483648"
    return f"""
    snapshot AS MATERIALIZED (
        SELECT {_HORIZON} AS horizon, ({latest}) AS latest,
            (SELECT xmin::text::bigint FROM durable_clock) AS noted
    ), seen AS MATERIALIZED (
        SELECT horizon, latest, least(horizon - 1, greatest(latest, {noted})) AS reached FROM snapshot
    )"""  # noqa: S608 - put together from texts that stand in the program


# The task, the time of the server, and what else a command may have to know: a purged task and one entry.
LOAD: Final = f"""
SELECT durable_now_ms(%(seen_ms)s), found.*, tombstone.digest, tombstone.purged_at_ms
FROM (SELECT 1) AS one
LEFT JOIN (
    SELECT task.id, task.version, {RECORD_COLUMNS}, (
        SELECT event.body FROM durable_events AS event
        WHERE event.id = task.id AND event.event_id = %(event_id)s
    )
    FROM {RECORD_TABLES}
    WHERE task.tenant_id = %(tenant_id)s AND task.task_id = %(task_id)s
) AS found ON true
LEFT JOIN durable_tombstones AS tombstone
    ON tombstone.tenant_id = %(tenant_id)s AND tombstone.task_id = %(task_id)s
"""  # noqa: S608 - put together from texts that stand in this file
GET: Final = (
    f"SELECT {RECORD_COLUMNS} FROM {RECORD_TABLES}"  # noqa: S608
    " WHERE task.tenant_id = %(tenant_id)s AND task.task_id = %(task_id)s"
)


class Stored(NamedTuple):
    """A record with the number of its rows and the version of the one that every write raises."""

    id: int
    version: int
    record: TaskRecord


class Loaded(NamedTuple):
    """What was there at an instant of the server's clock."""

    now_ms: int
    stored: Stored | None
    tombstone: Tombstone | None
    event: TaskEvent | None

    @property
    def record(self) -> TaskRecord | None:
        return None if self.stored is None else self.stored.record


def record_of(row: Sequence[Any]) -> TaskRecord:
    definition, progress, lease = row
    return decode_record(definition, progress, lease)


def loaded_of(key: TaskKey, row: Sequence[Any]) -> Loaded:
    """The answer to `LOAD`."""
    now_ms, number, version, *documents, event, digest, purged_at_ms = row
    return Loaded(
        now_ms,
        None if number is None else Stored(number, version, record_of(documents)),
        None if digest is None else Tombstone(key, digest, purged_at_ms),
        None if event is None else decode_event(event),
    )
