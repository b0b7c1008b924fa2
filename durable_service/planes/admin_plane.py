"""DurableAdminService: convert, call, convert."""

from typing import Any

import grpc.aio

from durable_service.planes.admin_calls import AdminCalls
from durable_service.planes.convert import milliseconds_of_duration
from durable_service.planes.gate import errors_told
from durable_service.planes.parts import Parts
from durable_service.planes.validation import Checks
from sealwork.durable.v1 import admin_service_pb2, admin_service_pb2_grpc
from service_common.drain import draining_error

SERVICE = "sealwork.durable.v1.DurableAdminService"

Context = grpc.aio.ServicerContext[Any, Any]


class AdminPlane(admin_service_pb2_grpc.DurableAdminServiceServicer):
    """Serves operators and admins."""

    def __init__(self, parts: Parts, calls: AdminCalls) -> None:
        self._parts = parts
        self._gate = parts.gate
        self._calls = calls

    async def GetStats(
        self, request: admin_service_pb2.GetStatsRequest, context: Context
    ) -> admin_service_pb2.GetStatsResponse:
        """Counts."""
        return await self._gate.unary("GetStats", self._calls.get_stats, request)

    async def ListUnknownActions(
        self, request: admin_service_pb2.ListUnknownActionsRequest, context: Context
    ) -> admin_service_pb2.ListUnknownActionsResponse:
        """Lists open outcomes."""
        return await self._gate.unary("ListUnknownActions", self._calls.list_unknown_actions, request)

    async def PurgeTasks(
        self, request: admin_service_pb2.PurgeTasksRequest, context: Context
    ) -> admin_service_pb2.PurgeTasksResponse:
        """Deletes tasks that have ended."""
        return await self._gate.unary("PurgeTasks", self._calls.purge_tasks, request)

    async def UpdateExtension(
        self, request: admin_service_pb2.UpdateExtensionRequest, context: Context
    ) -> admin_service_pb2.UpdateExtensionResponse:
        """Writes one extension."""
        return await self._gate.unary("UpdateExtension", self._calls.update_extension, request)

    async def Watch(  # type: ignore[override]
        self, request: admin_service_pb2.DurableAdminServiceWatchRequest, context: Context
    ) -> None:
        """Follows the counts."""
        caller = self._gate.caller("Watch")
        seconds = _period_seconds(request)
        with errors_told(), self._parts.watches.open(caller.id, context) as watch:
            while not watch.draining:
                stats = await self._calls.stats(caller)
                await watch.send(admin_service_pb2.DurableAdminServiceWatchResponse(stats=stats))
                await watch.wait(seconds)
        raise draining_error()


def _period_seconds(request: admin_service_pb2.DurableAdminServiceWatchRequest) -> float:
    if not request.HasField("period"):
        return 1.0
    checks = Checks()
    checks.span("period", request.period, 200, 15_000)
    checks.raise_faults()
    return milliseconds_of_duration(request.period) / 1000
