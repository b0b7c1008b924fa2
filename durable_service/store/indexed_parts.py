"""What of a record stands in an index of its own, for the stores that keep indexes beside it."""

from typing import Final

from durable_service.core.approvals import approvable
from durable_service.core.availability import availability
from durable_service.core.lapses import due_at_ms
from durable_service.core.model import TaskRecord
from durable_service.core.states import ActionState, ApprovalDecision
from durable_service.store.record_document import encode_lease

# The names of the columns, in the order of `admitted_values` and of `place_values`.
ADMITTED: Final = (
    "tenant_id",
    "task_id",
    "actor_id",
    "session_id",
    "root_run_id",
    "driver_id",
    "driver_version",
    "created_at_ms",
)
PLACES: Final = ("queue", "claimable_at_ms", "due_at_ms", "lease_worker", "lease_expires_at_ms", "lease")


def admitted_values(record: TaskRecord) -> tuple[object, ...]:
    """What of a task never changes and is looked for."""
    definition = record.definition
    identity, driver = definition.identity, definition.driver
    return (
        identity.tenant_id,
        definition.id,
        identity.actor_id,
        identity.session_id,
        identity.root_run_id,
        None if driver is None else driver.id,
        None if driver is None else driver.version,
        record.created_at_ms,
    )


def place_values(record: TaskRecord) -> tuple[object, ...]:
    """Where a task waits and who holds it."""
    place, lease = availability(record), record.lease
    return (
        None if place is None else place.queue.value,
        None if place is None else place.at_ms,
        due_at_ms(record),
        None if lease is None else lease.worker_id,
        None if lease is None else lease.expires_at_ms,
        encode_lease(lease),
    )


def undecided_approvals(record: TaskRecord) -> set[str]:
    """The approvals that can still be decided, as far as the record tells."""
    if not approvable(record):
        return set()
    return {
        name for name, approval in record.approvals.items() if approval.decision is ApprovalDecision.PENDING
    }


def unknown_actions(record: TaskRecord) -> set[str]:
    """The effects of which nobody knows whether they happened."""
    return {name for name, action in record.actions.items() if action.state is ActionState.UNKNOWN}
