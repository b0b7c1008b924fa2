"""Journals in a PostgreSQL store, each within the bounds of the store."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from durable_service.core.canonical_json import canonical_bytes
from durable_service.core.model import TaskEvent
from durable_service.store.base import StoreLimits
from durable_service.store.postgres_statement import Statement
from durable_service.store.record_document import encode_event

# The bytes before an entry are those of all entries of its task that were kept when it was written, and of
# those before them: the difference of two entries is what lies between them, whatever was dropped in front.
_INSERT: Final = """
INSERT INTO durable_events (id, sequence, event_id, at_ms, data_bytes, bytes_before, body)
SELECT task.id, entry.sequence, entry.event_id, entry.at_ms, entry.data_bytes,
    entry.bytes_before + coalesce((
        SELECT last.bytes_before + last.data_bytes FROM durable_events AS last
        WHERE last.id = task.id ORDER BY last.sequence DESC LIMIT 1
    ), 0), entry.body
FROM task, unnest(%(sequences)s::bigint[], %(event_ids)s::text[], %(instants)s::bigint[],
    %(sizes)s::bigint[], %(sizes_before)s::bigint[], %(bodies)s::bytea[]
) AS entry (sequence, event_id, at_ms, data_bytes, bytes_before, body)
"""
_DROP: Final = """
DELETE FROM durable_events AS entry USING task
WHERE entry.id = %(id)s AND task.id = entry.id AND entry.sequence < {first}
"""
# The oldest entry that stays, looked for from the old end; the first of the new ones when no other does.
_WITHIN_BYTES: Final = """coalesce((
    SELECT kept.sequence FROM durable_events AS kept WHERE kept.id = %(id)s AND kept.bytes_before >= (
        SELECT last.bytes_before + last.data_bytes + %(added_bytes)s::bigint - %(most_bytes)s::bigint
        FROM durable_events AS last WHERE last.id = %(id)s ORDER BY last.sequence DESC LIMIT 1
    ) ORDER BY kept.sequence LIMIT 1
), %(first_new)s::bigint)"""
_WITHIN_AGE: Final = """coalesce((
    SELECT kept.sequence FROM durable_events AS kept WHERE kept.id = %(id)s AND kept.at_ms > %(too_old_ms)s
    ORDER BY kept.sequence LIMIT 1
), %(first_new)s::bigint)"""


def add_events(
    statement: Statement, task: int | None, events: Sequence[TaskEvent], limits: StoreLimits
) -> None:
    """Adds entries to a journal, and drops those of it that are too many, too large or too old.

    Args:
        task: the number of the task's rows; None for a new one.
    """
    if not events:
        return
    sizes = [canonical_bytes(event.data) for event in events]
    before = list(accumulate(sizes[:-1], initial=0))
    # No part of a statement sees what another one adds: what would have to go at once is not added.
    kept = [
        entry
        for entry in zip(events, sizes, before, strict=True)
        if _stays(entry, events, sum(sizes), limits)
    ]
    statement.add(
        _INSERT,
        sequences=[event.sequence for event, _, _ in kept],
        event_ids=[event.event_id for event, _, _ in kept],
        instants=[event.at_ms for event, _, _ in kept],
        sizes=[size for _, size, _ in kept],
        sizes_before=[size for _, _, size in kept],
        bodies=[encode_event(event) for event, _, _ in kept],
    )
    if task is not None:
        _add_drop(statement, kept[0][0], events[-1], sum(sizes), limits)


def _stays(
    entry: tuple[TaskEvent, int, int], events: Sequence[TaskEvent], added_bytes: int, limits: StoreLimits
) -> bool:
    event, _, before = entry
    newest, most = events[-1], limits.event_bytes_per_task
    if event is newest:
        return True
    few = event.sequence > newest.sequence - limits.events_per_task
    return few and (most is None or added_bytes - before <= most)


def _add_drop(
    statement: Statement, first_new: TaskEvent, newest: TaskEvent, added_bytes: int, limits: StoreLimits
) -> None:
    first = newest.sequence - limits.events_per_task + 1
    values: dict[str, object] = {"first": first}
    bounds = ["%(first)s::bigint"]
    if limits.event_bytes_per_task is not None:
        bounds.append(_WITHIN_BYTES)
        values |= {"added_bytes": added_bytes, "most_bytes": limits.event_bytes_per_task}
    if limits.event_age_ms is not None:
        bounds.append(_WITHIN_AGE)
        values["too_old_ms"] = newest.at_ms - limits.event_age_ms
    if len(bounds) > 1:
        values["first_new"] = first_new.sequence
    elif first <= 1:
        return
    statement.add(_DROP.format(first=f"greatest({', '.join(bounds)})"), **values)
