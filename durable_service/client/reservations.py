"""Reservations: tokens and cost are taken from the budget before they are spent."""

from durable_service.client.lease_calls import LeaseCalls
from durable_service.client.methods import RESERVE_BUDGET
from durable_service.client.task_view import Usage, usage_of
from sealwork.durable.v1 import worker_service_pb2


class Reservations:
    """The budget of one task, under one lease."""

    def __init__(self, calls: LeaseCalls) -> None:
        """Reserve under the lease of `calls`."""
        self._calls = calls
        self._made = 0

    async def reserve(
        self, tokens: int = 0, cost_micros: int = 0, *, reservation_id: str | None = None
    ) -> Usage:
        """Take from the budget, for good; return what is used now.

        Args:
            tokens: How many to add; 0 is legal.
            cost_micros: Millionths of a currency unit to add; 0 is legal.
            reservation_id: Names it, the same whenever the handler runs again: then it is not counted twice.
                By default they are counted: the first of a run is always the same one, the second, and so on.
                Give ids where the order can change from run to run.

        Raises:
            DurableError: `BUDGET_EXHAUSTED`, and nothing was added; `REQUEST_ID_REUSED` when the id stands
                for another amount.
            CancelRequestedError: The task is to end.
            LeaseLostError: The task is no longer this worker's.
        """
        self._made += 1
        request = worker_service_pb2.ReserveBudgetRequest(
            reservation_id=f"reservation-{self._made}" if reservation_id is None else reservation_id,
            tokens=tokens,
            cost_micros=cost_micros,
        )
        answer = await self._calls.settle(RESERVE_BUDGET, request, "reserve_budget")
        return usage_of(answer.usage)
