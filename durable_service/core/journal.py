"""Entries that a worker adds to the journal of its task, and the reading of journals by cursor."""

from typing import Final

from durable_service.core.canonical_json import CanonicalJson, canonical_bytes
from durable_service.core.errors import DomainError, Reason, invalid
from durable_service.core.guards import held_lease
from durable_service.core.identifiers import checked_identifier, checked_integer, checked_repeat_id
from durable_service.core.limits import EVENT_DATA_BYTES
from durable_service.core.model import Holder, TaskEvent, TaskRecord
from durable_service.core.step import Decision, Step, unchanged

# The service's own entries: a worker that could write these could tell watchers that a task has ended.
SERVICE_TYPES: Final = frozenset(
    {
        "task.created",
        "task.state",
        "task.yielded",
        "lease.granted",
        "lease.released",
        "lease.expired",
        "budget.reserved",
        "approval.requested",
        "approval.decided",
        "approval.expired",
        "action.prepared",
        "action.awaiting_approval",
        "action.executing",
        "action.unknown",
        "action.looked_up",
        "action.confirmed",
        "action.rejected",
        "action.canceled",
    }
)


def append_event(
    record: TaskRecord,
    holder: Holder,
    event_id: str,
    event_type: str,
    data: CanonicalJson,
    now_ms: int,
    known: TaskEvent | None = None,
) -> Decision[TaskEvent]:
    """Adds an entry, in any state in which the lease is held.

    Args:
        known: the entry that the journal already has under this event id; it is the answer to a repeat.

    Raises:
        DomainError: LEASE_LOST, REQUEST_ID_REUSED, EVENT_TOO_LARGE, INVALID_IDENTIFIER.
    """
    checked_repeat_id(event_id, "eventId")
    checked_identifier(event_type, "type")
    if event_type in SERVICE_TYPES:
        raise invalid(Reason.INVALID_IDENTIFIER, "type", "is a type of the service's own entries")
    if canonical_bytes(data) > EVENT_DATA_BYTES:
        raise DomainError(
            Reason.EVENT_TOO_LARGE,
            "the data of the event is too large",
            {"limit_bytes": str(EVENT_DATA_BYTES)},
        )
    held_lease(record, holder, now_ms)
    if known is not None:
        if (known.type, known.data) != (event_type, data):
            raise DomainError(Reason.REQUEST_ID_REUSED, "the event id was used for another event")
        return unchanged(record, known)
    step = Step(record, now_ms)
    return step.decision(step.journal_text(event_type, data, event_id))


def check_cursor(after: int, earliest: int, latest: int) -> None:
    """Refuses a cursor that is not within what is kept. It names the last entry that the reader has.

    Args:
        earliest: of the entries kept; one above the latest when none is.

    Raises:
        DomainError: EVENT_GAP with earliest and latest, INVALID_INTEGER.
    """
    checked_integer(after, "after")
    if after < earliest - 1 or after > latest:
        raise DomainError(
            Reason.EVENT_GAP,
            "the cursor is outside the events that are kept",
            {"earliest": str(earliest), "latest": str(latest)},
        )
