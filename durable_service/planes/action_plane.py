"""ActionService: convert, call, convert."""

from typing import Any

import grpc.aio

from durable_service.planes.action_calls import ActionCalls
from durable_service.planes.parts import Parts
from sealwork.durable.v1 import action_service_pb2, action_service_pb2_grpc

SERVICE = "sealwork.durable.v1.ActionService"

Context = grpc.aio.ServicerContext[Any, Any]


class ActionPlane(action_service_pb2_grpc.ActionServiceServicer):
    """Serves workers, and operators that recover."""

    def __init__(self, parts: Parts, calls: ActionCalls) -> None:
        self._gate = parts.gate
        self._calls = calls

    async def PrepareAction(
        self, request: action_service_pb2.PrepareActionRequest, context: Context
    ) -> action_service_pb2.PrepareActionResponse:
        """Binds an action."""
        return await self._gate.unary("PrepareAction", self._calls.prepare_action, request)

    async def BeginDispatch(
        self, request: action_service_pb2.BeginDispatchRequest, context: Context
    ) -> action_service_pb2.BeginDispatchResponse:
        """Writes the intent down."""
        return await self._gate.unary("BeginDispatch", self._calls.begin_dispatch, request)

    async def ConfirmAction(
        self, request: action_service_pb2.ConfirmActionRequest, context: Context
    ) -> action_service_pb2.ConfirmActionResponse:
        """Writes a success down."""
        return await self._gate.unary("ConfirmAction", self._calls.confirm_action, request)

    async def MarkActionUnknown(
        self, request: action_service_pb2.MarkActionUnknownRequest, context: Context
    ) -> action_service_pb2.MarkActionUnknownResponse:
        """Writes doubt down."""
        return await self._gate.unary("MarkActionUnknown", self._calls.mark_action_unknown, request)

    async def WithdrawDispatch(
        self, request: action_service_pb2.WithdrawDispatchRequest, context: Context
    ) -> action_service_pb2.WithdrawDispatchResponse:
        """Takes an intent back."""
        return await self._gate.unary("WithdrawDispatch", self._calls.withdraw_dispatch, request)

    async def ReconcileAction(
        self, request: action_service_pb2.ReconcileActionRequest, context: Context
    ) -> action_service_pb2.ReconcileActionResponse:
        """Settles an open outcome."""
        return await self._gate.unary("ReconcileAction", self._calls.reconcile_action, request)

    async def ListActions(
        self, request: action_service_pb2.ListActionsRequest, context: Context
    ) -> action_service_pb2.ListActionsResponse:
        """Lists the actions of a task."""
        return await self._gate.unary("ListActions", self._calls.list_actions, request)
