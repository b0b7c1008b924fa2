"""Why a command does not happen: one exception, with a reason that programs can read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """The causes of refusal. Each has one status code and one client action on the wire."""

    INVALID_IDENTIFIER = "INVALID_IDENTIFIER"
    INVALID_INTEGER = "INVALID_INTEGER"
    INVALID_JSON = "INVALID_JSON"
    FIELD_INVALID = "FIELD_INVALID"
    RESERVED_EXTENSION = "RESERVED_EXTENSION"
    TASK_NOT_FOUND = "TASK_NOT_FOUND"
    DEFINITION_MISMATCH = "DEFINITION_MISMATCH"
    TASK_PURGED = "TASK_PURGED"
    LEASE_LOST = "LEASE_LOST"
    TASK_TERMINAL = "TASK_TERMINAL"
    CANCEL_NOT_REQUESTED = "CANCEL_NOT_REQUESTED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    RECOVERY_REQUIRED = "RECOVERY_REQUIRED"
    TASK_NOT_RUNNING = "TASK_NOT_RUNNING"
    ILLEGAL_TRANSITION = "ILLEGAL_TRANSITION"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"
    TASK_TOO_LARGE = "TASK_TOO_LARGE"
    INVARIANT = "INVARIANT"
    CONTENTION = "CONTENTION"
    ACTION_NOT_FOUND = "ACTION_NOT_FOUND"
    ACTION_MISMATCH = "ACTION_MISMATCH"
    CONNECTOR_VERSION = "CONNECTOR_VERSION"
    ACTION_SETTLED = "ACTION_SETTLED"
    APPROVAL_EXPIRY = "APPROVAL_EXPIRY"
    NOT_APPROVABLE = "NOT_APPROVABLE"
    APPROVAL_NOT_FOUND = "APPROVAL_NOT_FOUND"
    APPROVAL_BINDING = "APPROVAL_BINDING"
    APPROVAL_DECIDED = "APPROVAL_DECIDED"
    NOT_UNKNOWN = "NOT_UNKNOWN"
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    EXTENSION_CONFLICT = "EXTENSION_CONFLICT"
    EVENT_GAP = "EVENT_GAP"
    EVENT_TOO_LARGE = "EVENT_TOO_LARGE"
    ARTIFACT_TOO_LARGE = "ARTIFACT_TOO_LARGE"
    ARTIFACT_NOT_FOUND = "ARTIFACT_NOT_FOUND"
    ARTIFACT_EXPIRED = "ARTIFACT_EXPIRED"
    ARTIFACT_IMMUTABLE = "ARTIFACT_IMMUTABLE"
    SNAPSHOT_NOT_FOUND = "SNAPSHOT_NOT_FOUND"
    BLOB_CORRUPT = "BLOB_CORRUPT"
    BLOB_COLLISION = "BLOB_COLLISION"
    TTL_RANGE = "TTL_RANGE"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong: the field (or the action) and what about it."""

    subject: str
    description: str


class DomainError(Exception):
    """A command that was refused; nothing was changed by it.

    Attributes:
        reason: the machine-readable cause.
        details: facts that a caller may see, as text; never payload, never another tenant's.
        violations: the fields or actions at fault.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        details: Mapping[str, str] | None = None,
        violations: Sequence[Violation] = (),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.details: Mapping[str, str] = dict(details or {})
        self.violations = tuple(violations)


def invalid(reason: Reason, field: str, description: str) -> DomainError:
    """The refusal of one malformed field."""
    return DomainError(
        reason, f"{field or 'value'}: {description}", violations=(Violation(field, description),)
    )
