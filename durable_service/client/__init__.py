"""Client library of the durable service: tasks and approvals, and workers that execute tasks.

The names below are loaded when they are first asked for: who only reads a key file need not wait for gRPC.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from durable_service.client.actions import Action, ActionInput, ApprovalNeed
    from durable_service.client.approvals import Approval, ApprovalState
    from durable_service.client.blocking import BlockingClient
    from durable_service.client.client import Client
    from durable_service.client.errors import (
        ActionRejectedError,
        ApprovalPending,
        CancelRequestedError,
        DurableError,
        LeaseLostError,
        NotSentError,
        RecoveryRequiredError,
    )
    from durable_service.client.handler import Completed, Handler, Stopped, TaskContext, Yielded
    from durable_service.client.principal_key import PrincipalKey
    from durable_service.client.recovery import NotClaimed
    from durable_service.client.stop_signal import StopCause, StopSignal
    from durable_service.client.task_run import RunEnd, RunReport
    from durable_service.client.task_view import Condition, Task, TaskStatus
    from durable_service.client.tasks import NewTask, TaskFilter, View
    from durable_service.client.worker import Worker
    from durable_service.core.definition import Budget, Driver
    from durable_service.core.states import ActionState, TaskState
    from service_common.connection import Connection

__all__ = [
    "Action",
    "ActionInput",
    "ActionRejectedError",
    "ActionState",
    "Approval",
    "ApprovalNeed",
    "ApprovalPending",
    "ApprovalState",
    "BlockingClient",
    "Budget",
    "CancelRequestedError",
    "Client",
    "Completed",
    "Condition",
    "Connection",
    "Driver",
    "DurableError",
    "Handler",
    "LeaseLostError",
    "NewTask",
    "NotClaimed",
    "NotSentError",
    "PrincipalKey",
    "RecoveryRequiredError",
    "RunEnd",
    "RunReport",
    "StopCause",
    "StopSignal",
    "Stopped",
    "Task",
    "TaskContext",
    "TaskFilter",
    "TaskState",
    "TaskStatus",
    "View",
    "Worker",
    "Yielded",
]

_HERE = "durable_service.client."
_MODULES = {
    _HERE + "actions": ("Action", "ActionInput", "ApprovalNeed"),
    _HERE + "approvals": ("Approval", "ApprovalState"),
    _HERE + "blocking": ("BlockingClient",),
    _HERE + "client": ("Client",),
    _HERE + "errors": (
        "ActionRejectedError",
        "ApprovalPending",
        "CancelRequestedError",
        "DurableError",
        "LeaseLostError",
        "NotSentError",
        "RecoveryRequiredError",
    ),
    _HERE + "handler": ("Completed", "Handler", "Stopped", "TaskContext", "Yielded"),
    _HERE + "principal_key": ("PrincipalKey",),
    _HERE + "recovery": ("NotClaimed",),
    _HERE + "stop_signal": ("StopCause", "StopSignal"),
    _HERE + "task_run": ("RunEnd", "RunReport"),
    _HERE + "task_view": ("Condition", "Task", "TaskStatus"),
    _HERE + "tasks": ("NewTask", "TaskFilter", "View"),
    _HERE + "worker": ("Worker",),
    "durable_service.core.definition": ("Budget", "Driver"),
    "durable_service.core.states": ("ActionState", "TaskState"),
    "service_common.connection": ("Connection",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
