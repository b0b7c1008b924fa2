"""Where tasks, actions and approvals stand, and every move that there is."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class TaskState(StrEnum):
    """Where a task stands. A running task may have no lease."""

    QUEUED = "queued"
    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    CANCEL_REQUESTED = "cancel_requested"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    STOPPED = "stopped"


class ActionState(StrEnum):
    """Where an outside effect stands; `unknown` may or may not have happened."""

    PREPARED = "prepared"
    AWAITING_APPROVAL = "awaiting_approval"
    EXECUTING = "executing"
    UNKNOWN = "unknown"
    CONFIRMED = "confirmed"
    REJECTED = "rejected"
    CANCELED = "canceled"


class ApprovalDecision(StrEnum):
    """What the approver has said."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"


TERMINAL: Final = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.STOPPED})
# Effects whose outcome is not written down.
OPEN: Final = frozenset({ActionState.EXECUTING, ActionState.UNKNOWN})
UNSENT: Final = frozenset({ActionState.PREPARED, ActionState.AWAITING_APPROVAL})

TASK_MOVES: Final[Mapping[TaskState, frozenset[TaskState]]] = {
    TaskState.QUEUED: frozenset(
        {TaskState.RUNNING, TaskState.CANCEL_REQUESTED, TaskState.FAILED, TaskState.STOPPED}
    ),
    TaskState.RUNNING: frozenset(
        {
            TaskState.AWAITING_APPROVAL,
            TaskState.CANCEL_REQUESTED,
            TaskState.COMPLETED,
            TaskState.FAILED,
            TaskState.STOPPED,
        }
    ),
    TaskState.AWAITING_APPROVAL: frozenset(
        {TaskState.RUNNING, TaskState.CANCEL_REQUESTED, TaskState.FAILED, TaskState.STOPPED}
    ),
    TaskState.CANCEL_REQUESTED: frozenset({TaskState.FAILED, TaskState.CANCELED}),
    TaskState.COMPLETED: frozenset(),
    TaskState.FAILED: frozenset(),
    TaskState.CANCELED: frozenset(),
    TaskState.STOPPED: frozenset(),
}

ACTION_MOVES: Final[Mapping[ActionState, frozenset[ActionState]]] = {
    ActionState.PREPARED: frozenset(
        {ActionState.AWAITING_APPROVAL, ActionState.EXECUTING, ActionState.REJECTED, ActionState.CANCELED}
    ),
    ActionState.AWAITING_APPROVAL: frozenset(
        {ActionState.EXECUTING, ActionState.REJECTED, ActionState.CANCELED}
    ),
    ActionState.EXECUTING: frozenset({ActionState.CONFIRMED, ActionState.UNKNOWN, ActionState.CANCELED}),
    ActionState.UNKNOWN: frozenset({ActionState.CONFIRMED, ActionState.PREPARED, ActionState.CANCELED}),
    ActionState.CONFIRMED: frozenset(),
    ActionState.REJECTED: frozenset(),
    ActionState.CANCELED: frozenset(),
}
