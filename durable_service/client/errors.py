"""What a client of the durable service can run into, each with what to do about it."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import grpc

from service_common.client_errors import CallError

_ADVICE: Final[Mapping[str, str]] = {
    "ACTION_MISMATCH": "derive the action's id from what it does",
    "ACTION_SETTLED": "prepare a new action if the effect is still wanted",
    "ADMISSION_REFUSED": "ask the service's operator",
    "APPROVAL_BINDING": "read the approval again and decide anew",
    "APPROVAL_DECIDED": "read the approval; a decision is final",
    "APPROVAL_EXPIRY": "ask for approval with more time",
    "APPROVAL_NOT_FOUND": "list the approvals that wait for you",
    "ARTIFACT_EXPIRED": "put the bytes under a new id",
    "ARTIFACT_IMMUTABLE": "use a new id for new bytes",
    "BAD_SIGNATURE": "check that the service's principals have this id with the public key of this key file",
    "BUDGET_EXHAUSTED": "finish with what there is; a budget never grows",
    "CLOCK_SKEW": "set this machine's clock",
    "CONNECTOR_VERSION": "use the connector version that the action was prepared for",
    "CONTENTION": "try again",
    "DEFINITION_MISMATCH": "choose another task id",
    "EVENT_GAP": "go on from the earliest event that is retained",
    "FIELD_INVALID": "correct the named field",
    "INTERNAL": "report the incident id to the service's operator",
    "INVALID_IDENTIFIER": "correct the named field",
    "LEASE_LOST": "stop; somebody else may have the task",
    "NOT_APPROVABLE": "nothing is left to approve",
    "NOT_IMPLEMENTED": "this service does not serve the method; upgrade it",
    "PRINCIPAL_REVOKED": "this principal is cut off; ask the service's operator",
    "QUOTA_EXCEEDED": "wait, then try again",
    "RECOVERY_REQUIRED": "reconcile the open actions first",
    "ROLE_NOT_ALLOWED": "use a principal with the role that this needs",
    "SERVER_DRAINING": "try again; another server takes over",
    "SESSION_SUPERSEDED": "look for a second process with this worker id",
    "STORE_UNAVAILABLE": "try again later; the service's operator sees it too",
    "TASK_NOT_FOUND": "check the task id, and that this principal may see it",
    "TASK_PURGED": "choose another task id",
    "TASK_TERMINAL": "the task has ended",
    "TASK_TOO_LARGE": "keep large values as artifacts",
    "TOO_MANY_SESSIONS": "share one client between the tasks of a process",
    "UNSUPPORTED_PROTOCOL_VERSION": "upgrade whichever of client and service is older",
    "WORKER_ID_CONFLICT": "give each process a worker id of its own",
}

_ADVICE_BY_CODE: Final[Mapping[grpc.StatusCode, str]] = {
    grpc.StatusCode.DEADLINE_EXCEEDED: "check that the address is that of a durable service, and try again",
    grpc.StatusCode.UNAVAILABLE: "check the address, and that the service is running",
    grpc.StatusCode.UNIMPLEMENTED: "check that the address is that of a durable service",
    grpc.StatusCode.CANCELLED: "try again",
    grpc.StatusCode.PERMISSION_DENIED: "something on the way refuses the call; check proxies",
    grpc.StatusCode.UNAUTHENTICATED: "something on the way refuses the call; check proxies",
}


class DurableError(CallError):
    """The durable service, or the way to it, refused a call."""

    advice_by_reason = _ADVICE
    advice_by_code = _ADVICE_BY_CODE


class LeaseLostError(Exception):
    """The task is no longer this worker's: do nothing more for it."""

    def __init__(self, task_id: str, why: str = "its lease is over") -> None:
        """Tell of the lease on `task_id`."""
        super().__init__(f"the task {task_id} is lost: {why}")
        self.task_id = task_id


class CancelRequestedError(Exception):
    """Somebody wants the task to end: stop, and return."""

    def __init__(self, task_id: str) -> None:
        """Tell of the request to cancel `task_id`."""
        super().__init__(f"cancellation of the task {task_id} is requested")
        self.task_id = task_id


class RecoveryRequiredError(Exception):
    """Nobody knows whether an effect has happened; the task stands still until that is settled by evidence.

    Attributes:
        task_id: The task.
        action_ids: The actions whose outcome is open; empty when they are not known here.
    """

    def __init__(self, task_id: str, action_ids: Sequence[str] = ()) -> None:
        """Tell of the open outcomes of `task_id`."""
        named = f" of {', '.join(action_ids)}" if action_ids else ""
        super().__init__(f"the outcome{named} in task {task_id} is not known: reconcile it with evidence")
        self.task_id = task_id
        self.action_ids = tuple(action_ids)


class Rejection(StrEnum):
    """Why an approval does not let an action happen."""

    DENIED = "denied"
    EXPIRED = "expired"
    CONSUMED = "consumed"
    BINDING = "binding"
    UNKNOWN = "unknown"


class ActionRejectedError(Exception):
    """The action will not happen, and its id is spent. A handler may go on without it."""

    def __init__(self, action_id: str, approval_id: str, rejection: Rejection) -> None:
        """Tell why `action_id` is rejected."""
        super().__init__(f"the action {action_id} is rejected: its approval is {rejection.value}")
        self.action_id = action_id
        self.approval_id = approval_id
        self.rejection = rejection


class NotSentError(Exception):
    """Raised by a connector that is certain that nothing was sent and nothing will be.

    The action can then be tried again under the same id. In the least doubt a connector raises something
    else, and the outcome counts as unknown.
    """


class ApprovalPending(BaseException):
    """An action waits for its approval: the task is given back, and its handler runs again later.

    It is no `Exception`, so that a handler that catches those does not hold up its own suspension.
    """

    def __init__(self, action_id: str, approval_id: str, expires_at_ms: int) -> None:
        """Tell what is waited for, until `expires_at_ms` (epoch milliseconds)."""
        super().__init__(f"the action {action_id} waits for approval {approval_id}")
        self.action_id = action_id
        self.approval_id = approval_id
        self.expires_at_ms = expires_at_ms
