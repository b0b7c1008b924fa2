"""TaskService: convert, call, convert."""

from typing import Any

import grpc.aio

from durable_service.planes.gate import errors_told
from durable_service.planes.parts import Parts
from durable_service.planes.task_calls import TaskCalls
from durable_service.planes.task_watch import TaskWatch
from sealwork.durable.v1 import task_service_pb2, task_service_pb2_grpc

SERVICE = "sealwork.durable.v1.TaskService"

Context = grpc.aio.ServicerContext[Any, Any]


class TaskPlane(task_service_pb2_grpc.TaskServiceServicer):
    """Serves submitters and operators."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._gate = parts.gate
        self._calls = TaskCalls(parts)

    async def CreateTask(
        self, request: task_service_pb2.CreateTaskRequest, context: Context
    ) -> task_service_pb2.CreateTaskResponse:
        """Admits a task."""
        return await self._gate.unary("CreateTask", self._calls.create_task, request)

    async def GetTask(
        self, request: task_service_pb2.GetTaskRequest, context: Context
    ) -> task_service_pb2.GetTaskResponse:
        """Reads one task."""
        return await self._gate.unary("GetTask", self._calls.get_task, request)

    async def ListTasks(
        self, request: task_service_pb2.ListTasksRequest, context: Context
    ) -> task_service_pb2.ListTasksResponse:
        """Lists tasks, newest first."""
        return await self._gate.unary("ListTasks", self._calls.list_tasks, request)

    async def CancelTask(
        self, request: task_service_pb2.CancelTaskRequest, context: Context
    ) -> task_service_pb2.CancelTaskResponse:
        """Asks for a task to be cancelled."""
        return await self._gate.unary("CancelTask", self._calls.cancel_task, request)

    async def WaitTask(
        self, request: task_service_pb2.WaitTaskRequest, context: Context
    ) -> task_service_pb2.WaitTaskResponse:
        """Waits for a task."""
        return await self._gate.unary("WaitTask", self._calls.wait_task, request)

    async def WatchTasks(  # type: ignore[override]
        self, request: task_service_pb2.WatchTasksRequest, context: Context
    ) -> None:
        """Follows tasks."""
        caller = self._gate.caller("WatchTasks")
        with errors_told(), self._parts.watches.open(caller.id, context) as watch:
            await TaskWatch(self._parts, caller, request, watch).run()
