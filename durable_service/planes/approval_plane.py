"""ApprovalService: convert, call, convert."""

from typing import Any

import grpc.aio

from durable_service.planes.approval_calls import ApprovalCalls
from durable_service.planes.approval_watch import ApprovalWatch
from durable_service.planes.gate import errors_told
from durable_service.planes.parts import Parts
from sealwork.durable.v1 import approval_service_pb2, approval_service_pb2_grpc

SERVICE = "sealwork.durable.v1.ApprovalService"

Context = grpc.aio.ServicerContext[Any, Any]


class ApprovalPlane(approval_service_pb2_grpc.ApprovalServiceServicer):
    """Serves approvers."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._gate = parts.gate
        self._calls = ApprovalCalls(parts)

    async def ListPendingApprovals(
        self, request: approval_service_pb2.ListPendingApprovalsRequest, context: Context
    ) -> approval_service_pb2.ListPendingApprovalsResponse:
        """Lists what waits for the caller."""
        return await self._gate.unary("ListPendingApprovals", self._calls.list_pending_approvals, request)

    async def GetApproval(
        self, request: approval_service_pb2.GetApprovalRequest, context: Context
    ) -> approval_service_pb2.GetApprovalResponse:
        """Reads an approval with what it is about."""
        return await self._gate.unary("GetApproval", self._calls.get_approval, request)

    async def DecideApproval(
        self, request: approval_service_pb2.DecideApprovalRequest, context: Context
    ) -> approval_service_pb2.DecideApprovalResponse:
        """Gives or refuses."""
        return await self._gate.unary("DecideApproval", self._calls.decide_approval, request)

    async def WatchApprovals(  # type: ignore[override]
        self, request: approval_service_pb2.WatchApprovalsRequest, context: Context
    ) -> None:
        """Follows approvals."""
        caller = self._gate.caller("WatchApprovals")
        with errors_told(), self._parts.watches.open(caller.id, context) as watch:
            await ApprovalWatch(self._parts, caller, watch).run()
