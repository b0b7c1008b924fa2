"""What every store does with a record between reading and writing it."""

from durable_service.core.errors import DomainError, Reason
from durable_service.core.guards import held_lease
from durable_service.core.journal import append_event
from durable_service.core.model import Holder, TaskEvent, TaskRecord
from durable_service.core.step import Decision
from durable_service.core.succession import check_succession
from durable_service.store.base import Answer, EventDraft, Mutation


def decided(
    record: TaskRecord | None, mutate: Mutation[Answer], guard: Holder | None, now_ms: int
) -> Decision[Answer]:
    """Runs a command; what it decides may be written as it is.

    Raises:
        DomainError: as `TaskStore.update`.
    """
    if record is None:
        raise not_found()
    if guard is not None:
        held_lease(record, guard, now_ms)
    decision = mutate(record, now_ms)
    if decision.written:
        check_succession(record, decision.record)
    return decision


def appending(holder: Holder, draft: EventDraft, known: TaskEvent | None) -> Mutation[TaskEvent]:
    """The command that adds one journal entry."""

    def mutate(record: TaskRecord, now_ms: int) -> Decision[TaskEvent]:
        return append_event(record, holder, draft.event_id, draft.type, draft.data, now_ms, known)

    return mutate


def not_found() -> DomainError:
    return DomainError(Reason.TASK_NOT_FOUND, "there is no such task")
