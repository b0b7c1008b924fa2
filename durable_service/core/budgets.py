"""The use of tokens and cost."""

from durable_service.core.errors import DomainError, Reason, Violation
from durable_service.core.guards import require_running, working_lease
from durable_service.core.identifiers import checked_integer, checked_repeat_id
from durable_service.core.limits import TASK_BYTES
from durable_service.core.model import Holder, Reservation, TaskRecord, with_entry
from durable_service.core.record_size import checked_size
from durable_service.core.step import Decision, Step, unchanged


def reserve(
    record: TaskRecord,
    holder: Holder,
    reservation: Reservation,
    now_ms: int,
    limit_bytes: int = TASK_BYTES,
) -> Decision[Reservation]:
    """Uses up a part of the budget before it is spent; there is no refund.

    The same id is the same reservation for the whole life of the task, so a handler that runs again does
    not pay twice.

    Raises:
        DomainError: LEASE_LOST, REQUEST_ID_REUSED, BUDGET_EXHAUSTED, CANCEL_REQUESTED, TASK_NOT_RUNNING,
            INVALID_IDENTIFIER, INVALID_INTEGER, TASK_TOO_LARGE.
    """
    checked_repeat_id(reservation.id, "reservationId")
    checked_integer(reservation.tokens, "tokens")
    checked_integer(reservation.cost_micros, "costMicros")
    working_lease(record, holder, now_ms)
    present = record.reservations.get(reservation.id)
    if present is not None:
        if present != reservation:
            raise DomainError(Reason.REQUEST_ID_REUSED, "the reservation id was used for other amounts")
        return unchanged(record, present)
    require_running(record)
    tokens = record.reserved_tokens + reservation.tokens
    cost = record.reserved_cost_micros + reservation.cost_micros
    _require_budget(record, tokens, cost)
    step = Step(record, now_ms)
    step.change(
        reserved_tokens=tokens,
        reserved_cost_micros=cost,
        reservations=with_entry(record.reservations, reservation.id, reservation),
    )
    checked_size(step.record, limit_bytes)
    step.journal(
        "budget.reserved",
        {
            "costMicros": reservation.cost_micros,
            "reservationId": reservation.id,
            "tokens": reservation.tokens,
        },
    )
    return step.decision(reservation)


def _require_budget(record: TaskRecord, tokens: int, cost: int) -> None:
    budget = record.definition.budget
    over = [
        Violation(subject, f"{wanted} of {ceiling}")
        for subject, wanted, ceiling in (
            ("tokens", tokens, budget.max_tokens),
            ("cost", cost, budget.max_cost_micros),
        )
        if wanted > ceiling
    ]
    if over:
        subjects = ",".join(violation.subject for violation in over)
        raise DomainError(Reason.BUDGET_EXHAUSTED, "the budget is used up", {"budget": subjects}, over)
