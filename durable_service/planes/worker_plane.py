"""WorkerService: convert, call, convert."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio

from durable_service.planes.claim_calls import ClaimCalls
from durable_service.planes.lease_calls import LeaseCalls
from durable_service.planes.parts import Parts
from sealwork.durable.v1 import worker_service_pb2, worker_service_pb2_grpc

SERVICE = "sealwork.durable.v1.WorkerService"

Context = grpc.aio.ServicerContext[Any, Any]


class WorkerPlane(worker_service_pb2_grpc.WorkerServiceServicer):
    """Serves workers.

    Args:
        serve_stream: serves one stream of a worker to its end.
    """

    def __init__(
        self, parts: Parts, leases: LeaseCalls, serve_stream: Callable[[Context], Awaitable[None]]
    ) -> None:
        self._gate = parts.gate
        self._claims = ClaimCalls(parts)
        self._leases = leases
        self._serve_stream = serve_stream

    # The reader and writer API of grpc.aio; the generated types know only iterators.
    async def Session(self, request_iterator: AsyncIterator[Any], context: Context) -> None:  # type: ignore[override]
        """One stream of one worker process."""
        await self._serve_stream(context)

    async def ClaimNext(
        self, request: worker_service_pb2.ClaimNextRequest, context: Context
    ) -> worker_service_pb2.ClaimNextResponse:
        """Claims the task that has waited longest."""
        return await self._gate.unary("ClaimNext", self._claims.claim_next, request)

    async def ClaimTask(
        self, request: worker_service_pb2.ClaimTaskRequest, context: Context
    ) -> worker_service_pb2.ClaimTaskResponse:
        """Claims one task."""
        return await self._gate.unary("ClaimTask", self._claims.claim_task, request)

    async def ClaimForRecovery(
        self, request: worker_service_pb2.ClaimForRecoveryRequest, context: Context
    ) -> worker_service_pb2.ClaimForRecoveryResponse:
        """Claims a task to settle its open outcomes."""
        return await self._gate.unary("ClaimForRecovery", self._claims.claim_for_recovery, request)

    async def RenewLeases(
        self, request: worker_service_pb2.RenewLeasesRequest, context: Context
    ) -> worker_service_pb2.RenewLeasesResponse:
        """Keeps leases."""
        return await self._gate.unary("RenewLeases", self._leases.renew_leases, request)

    async def ReleaseTask(
        self, request: worker_service_pb2.ReleaseTaskRequest, context: Context
    ) -> worker_service_pb2.ReleaseTaskResponse:
        """Gives a task back."""
        return await self._gate.unary("ReleaseTask", self._leases.release_task, request)

    async def YieldTask(
        self, request: worker_service_pb2.YieldTaskRequest, context: Context
    ) -> worker_service_pb2.YieldTaskResponse:
        """Gives a task back for a while."""
        return await self._gate.unary("YieldTask", self._leases.yield_task, request)

    async def ReserveBudget(
        self, request: worker_service_pb2.ReserveBudgetRequest, context: Context
    ) -> worker_service_pb2.ReserveBudgetResponse:
        """Reserves before spending."""
        return await self._gate.unary("ReserveBudget", self._leases.reserve_budget, request)

    async def CompleteTask(
        self, request: worker_service_pb2.CompleteTaskRequest, context: Context
    ) -> worker_service_pb2.CompleteTaskResponse:
        """Ends a task: its handler returned."""
        return await self._gate.unary("CompleteTask", self._leases.complete_task, request)

    async def FailTask(
        self, request: worker_service_pb2.FailTaskRequest, context: Context
    ) -> worker_service_pb2.FailTaskResponse:
        """Ends a task: its handler failed."""
        return await self._gate.unary("FailTask", self._leases.fail_task, request)

    async def AcknowledgeCancellation(
        self, request: worker_service_pb2.AcknowledgeCancellationRequest, context: Context
    ) -> worker_service_pb2.AcknowledgeCancellationResponse:
        """Ends a task whose cancellation is requested."""
        return await self._gate.unary(
            "AcknowledgeCancellation", self._leases.acknowledge_cancellation, request
        )
