"""How a refusal of the core reads on the wire, and the planes' own refusals."""

import re
from typing import Final

import grpc

from durable_service.core.errors import DomainError, Reason
from service_common.errors import FieldViolation, QuotaViolation, ServiceError

_INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT
_PRECONDITION: Final = grpc.StatusCode.FAILED_PRECONDITION
_NOT_FOUND: Final = grpc.StatusCode.NOT_FOUND
_EXISTS: Final = grpc.StatusCode.ALREADY_EXISTS

# INVARIANT is missing: it is a fault of this program, and answered as one.
CODES: Final = {
    Reason.INVALID_IDENTIFIER: _INVALID,
    Reason.INVALID_INTEGER: _INVALID,
    Reason.INVALID_JSON: _INVALID,
    Reason.FIELD_INVALID: _INVALID,
    Reason.RESERVED_EXTENSION: _INVALID,
    Reason.TASK_TOO_LARGE: _INVALID,
    Reason.EVENT_TOO_LARGE: _INVALID,
    Reason.ARTIFACT_TOO_LARGE: _INVALID,
    Reason.TTL_RANGE: _INVALID,
    Reason.APPROVAL_EXPIRY: _INVALID,
    Reason.TASK_NOT_FOUND: _NOT_FOUND,
    Reason.ACTION_NOT_FOUND: _NOT_FOUND,
    Reason.APPROVAL_NOT_FOUND: _NOT_FOUND,
    Reason.ARTIFACT_NOT_FOUND: _NOT_FOUND,
    Reason.ARTIFACT_EXPIRED: _NOT_FOUND,
    Reason.SNAPSHOT_NOT_FOUND: _NOT_FOUND,
    Reason.DEFINITION_MISMATCH: _EXISTS,
    Reason.TASK_PURGED: _EXISTS,
    Reason.ACTION_MISMATCH: _EXISTS,
    Reason.ARTIFACT_IMMUTABLE: _EXISTS,
    Reason.REQUEST_ID_REUSED: _EXISTS,
    Reason.LEASE_LOST: _PRECONDITION,
    Reason.TASK_TERMINAL: _PRECONDITION,
    Reason.TASK_NOT_RUNNING: _PRECONDITION,
    Reason.CANCEL_REQUESTED: _PRECONDITION,
    Reason.CANCEL_NOT_REQUESTED: _PRECONDITION,
    Reason.RECOVERY_REQUIRED: _PRECONDITION,
    Reason.ILLEGAL_TRANSITION: _PRECONDITION,
    Reason.ACTION_SETTLED: _PRECONDITION,
    Reason.CONNECTOR_VERSION: _PRECONDITION,
    Reason.NOT_UNKNOWN: _PRECONDITION,
    Reason.NOT_APPROVABLE: _PRECONDITION,
    Reason.APPROVAL_BINDING: _PRECONDITION,
    Reason.APPROVAL_DECIDED: _PRECONDITION,
    Reason.CONTENTION: grpc.StatusCode.ABORTED,
    Reason.EXTENSION_CONFLICT: grpc.StatusCode.ABORTED,
    Reason.EVENT_GAP: grpc.StatusCode.OUT_OF_RANGE,
    Reason.BUDGET_EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.STORE_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.BLOB_CORRUPT: grpc.StatusCode.DATA_LOSS,
    Reason.BLOB_COLLISION: grpc.StatusCode.DATA_LOSS,
}
_RETRY_AFTER_MS: Final = {Reason.CONTENTION: 100, Reason.STORE_UNAVAILABLE: 1_000}
# One text for each, whatever has refused: it must not tell a hidden task from a missing one, nor what ails
# the store.
_TEXTS: Final = {
    Reason.TASK_NOT_FOUND: "there is no such task for this caller",
    Reason.APPROVAL_NOT_FOUND: "there is no such approval for this caller",
    Reason.STORE_UNAVAILABLE: "the store cannot do its work now; repeat the request with the same ids, "
    "no lease is lost by this",
}
_WORD_START: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")


def refused(error: DomainError) -> ServiceError:
    """A refusal of the core as the error of a call.

    Raises:
        DomainError: the error itself, when it is a fault of this program.
    """
    code = CODES.get(error.reason)
    if code is None:
        raise error
    message = _TEXTS.get(error.reason) or snake_case(error.message)
    violations: tuple[FieldViolation, ...] = ()
    quota = None
    if code is _INVALID:
        violations = tuple(
            FieldViolation(snake_case(each.subject), each.description) for each in error.violations
        )
    elif code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        quota = QuotaViolation(error.details.get("budget", ""), "the ceiling of the task's budget")
    return ServiceError(
        code,
        error.reason.value,
        message,
        metadata=error.details,
        retry_after_ms=_RETRY_AFTER_MS.get(error.reason),
        violations=violations,
        quota=quota,
    )


def snake_case(path: str) -> str:
    """A name of the core as the protocol spells it."""
    return _WORD_START.sub(lambda match: "_" + match[1].lower(), path)


def role_not_allowed(message: str = "the principal's roles do not allow this call") -> ServiceError:
    """The principal is known and may not do this."""
    return ServiceError(grpc.StatusCode.PERMISSION_DENIED, "ROLE_NOT_ALLOWED", message)


def page_token_invalid() -> ServiceError:
    """The token is not one of ours, or was made for another list."""
    return ServiceError(
        _INVALID,
        "PAGE_TOKEN_INVALID",
        "the token is not one that this method returned for this filter; start from the first page",
    )


def resume_token_expired() -> ServiceError:
    """The token is of content that is gone."""
    return ServiceError(
        grpc.StatusCode.OUT_OF_RANGE,
        "RESUME_TOKEN_EXPIRED",
        "the resume token is older than what is kept; list the tasks, then watch from the list's token",
    )


def content_mismatch(message: str) -> ServiceError:
    """The bytes are not those that the header describes."""
    return ServiceError(_INVALID, "ARTIFACT_CONTENT_MISMATCH", message)


def body_too_large(limit: int) -> ServiceError:
    """The body does not fit a call on the session."""
    return ServiceError(
        _PRECONDITION,
        "BODY_TOO_LARGE_FOR_SESSION",
        "the body is over the limit for a call on the session; use the unary call",
        metadata={"limit_bytes": str(limit)},
    )


def too_many_watches(most: int) -> ServiceError:
    """The principal has its most streams open."""
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "TOO_MANY_SESSIONS",
        f"at most {most} watches at a time; share one between tasks",
        retry_after_ms=10_000,
    )


def not_implemented(message: str) -> ServiceError:
    """The call is not served here."""
    return ServiceError(grpc.StatusCode.UNIMPLEMENTED, "NOT_IMPLEMENTED", message)
