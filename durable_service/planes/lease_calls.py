"""What workers do with the tasks that they hold, actions and records aside."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from durable_service.caller import Caller, for_caller
from durable_service.core.budgets import reserve
from durable_service.core.errors import DomainError, Reason
from durable_service.core.leases import release, renew, yield_task
from durable_service.core.model import Holder, Reservation, TaskRecord
from durable_service.core.outcomes import acknowledge_cancellation, complete, fail
from durable_service.core.step import Decision, unchanged
from durable_service.core.verdicts import LeaseState, LeaseVerdict, verdict
from durable_service.planes.convert import (
    holder_of,
    milliseconds_of_duration,
    status_message,
    verdict_message,
)
from durable_service.planes.parts import Parts
from durable_service.planes.task_messages import usage_message
from durable_service.planes.validation import LONGEST_DELAY_MS, Checks, check_lease
from sealwork.durable.v1 import lease_pb2, task_pb2, worker_service_pb2

HolderCommand: TypeAlias = Callable[[TaskRecord, Holder, int], Decision[object]]


class LeaseCalls:
    """The calls of WorkerService that name a lease."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store

    async def renew_leases(
        self, caller: Caller, request: worker_service_pb2.RenewLeasesRequest
    ) -> worker_service_pb2.RenewLeasesResponse:
        verdicts = await self.renew(caller, request.leases)
        return worker_service_pb2.RenewLeasesResponse(verdicts=map(verdict_message, request.leases, verdicts))

    async def renew(self, caller: Caller, leases: Sequence[lease_pb2.LeaseRef]) -> list[LeaseVerdict]:
        """Makes each lease that is held last for another lease length; a verdict for each, in order.

        Raises:
            ServiceError: FIELD_INVALID.
        """
        checks = Checks()
        checks.leases("leases", leases)
        checks.raise_faults()
        return await self.verdicts(caller, leases, renewing=True)

    async def verdicts(
        self, caller: Caller, leases: Iterable[lease_pb2.LeaseRef], *, renewing: bool
    ) -> list[LeaseVerdict]:
        """The word on each of these leases, in order."""
        # Side by side, so that a store that writes in groups writes them in one.
        return await asyncio.gather(*(self._verdict(caller, lease, renewing=renewing) for lease in leases))

    async def _verdict(self, caller: Caller, lease: lease_pb2.LeaseRef, *, renewing: bool) -> LeaseVerdict:
        holder = holder_of(caller, lease)

        def mutate(record: TaskRecord, now_ms: int) -> Decision[LeaseVerdict]:
            found = verdict(record, holder, now_ms)
            if not renewing or found.state not in {LeaseState.ACTIVE, LeaseState.CANCEL_REQUESTED}:
                return unchanged(record, found)
            renewed = renew(record, holder, self._parts.lease_ms, now_ms)
            answer = LeaseVerdict(found.state, self._parts.lease_ms)
            return Decision(renewed.record, answer, renewed.events, renewed.written)

        try:
            return (await self._store.update(caller.key(lease.task_id), for_caller(caller, mutate))).answer
        except DomainError as error:
            if error.reason is not Reason.TASK_NOT_FOUND:
                raise
            return verdict(None, holder, 0)

    async def release_task(
        self, caller: Caller, request: worker_service_pb2.ReleaseTaskRequest
    ) -> worker_service_pb2.ReleaseTaskResponse:
        status = await self._write(caller, request.lease, release)
        return worker_service_pb2.ReleaseTaskResponse(status=status)

    async def yield_task(
        self, caller: Caller, request: worker_service_pb2.YieldTaskRequest
    ) -> worker_service_pb2.YieldTaskResponse:
        checks = Checks()
        checks.span("delay", request.delay, 0, LONGEST_DELAY_MS)
        checks.raise_faults()
        delay_ms = milliseconds_of_duration(request.delay)

        def command(record: TaskRecord, holder: Holder, now_ms: int) -> Decision[None]:
            return yield_task(record, holder, now_ms + delay_ms, request.reason, now_ms)

        return worker_service_pb2.YieldTaskResponse(status=await self._write(caller, request.lease, command))

    async def reserve_budget(
        self, caller: Caller, request: worker_service_pb2.ReserveBudgetRequest
    ) -> worker_service_pb2.ReserveBudgetResponse:
        check_lease(request.lease)
        holder = holder_of(caller, request.lease)
        reservation = Reservation(request.reservation_id, request.tokens, request.cost_micros)
        decision = await self._store.update(
            caller.key(request.lease.task_id),
            for_caller(caller, lambda record, now_ms: reserve(record, holder, reservation, now_ms)),
        )
        return worker_service_pb2.ReserveBudgetResponse(
            status=status_message(decision.record),
            usage=usage_message(decision.record),
            duplicate=not decision.written,
        )

    async def complete_task(
        self, caller: Caller, request: worker_service_pb2.CompleteTaskRequest
    ) -> worker_service_pb2.CompleteTaskResponse:
        checks = Checks()
        checks.known("outcome", request.outcome, worker_service_pb2.TaskOutcome.values())
        checks.raise_faults()
        result_ref = request.result_ref if request.HasField("result_ref") else None
        stopped = request.outcome == worker_service_pb2.TASK_OUTCOME_STOPPED

        def command(record: TaskRecord, holder: Holder, now_ms: int) -> Decision[object]:
            return complete(record, holder, result_ref, now_ms, stopped=stopped)

        status = await self._write(caller, request.lease, command)
        return worker_service_pb2.CompleteTaskResponse(status=status)

    async def fail_task(
        self, caller: Caller, request: worker_service_pb2.FailTaskRequest
    ) -> worker_service_pb2.FailTaskResponse:
        def command(record: TaskRecord, holder: Holder, now_ms: int) -> Decision[object]:
            return fail(record, holder, request.failure, now_ms)

        return worker_service_pb2.FailTaskResponse(status=await self._write(caller, request.lease, command))

    async def acknowledge_cancellation(
        self, caller: Caller, request: worker_service_pb2.AcknowledgeCancellationRequest
    ) -> worker_service_pb2.AcknowledgeCancellationResponse:
        status = await self._write(caller, request.lease, acknowledge_cancellation)
        return worker_service_pb2.AcknowledgeCancellationResponse(status=status)

    async def _write(
        self, caller: Caller, lease: lease_pb2.LeaseRef, command: HolderCommand
    ) -> task_pb2.TaskStatus:
        check_lease(lease)
        holder = holder_of(caller, lease)

        def mutate(record: TaskRecord, now_ms: int) -> Decision[object]:
            return command(record, holder, now_ms)

        decision = await self._store.update(caller.key(lease.task_id), for_caller(caller, mutate))
        return status_message(decision.record)
