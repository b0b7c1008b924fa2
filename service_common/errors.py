"""The one error that a service shows to a caller, and its form on the wire."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import grpc
from google.protobuf import any_pb2, duration_pb2, message
from google.rpc import error_details_pb2, status_pb2

# A status travels in the trailers, which peers and proxies commonly limit to 8 KiB, and its message twice.
_MESSAGE_CHARACTERS: Final = 512
_VIOLATION_BYTES: Final = 3072
# As gRPC tells that nothing listens: with the address and the system's reason, among more for programmers.
_NOT_REACHED: Final = re.compile(
    r"failed to connect to all addresses; last error: .*?"
    r"(?:ipv[46]|unix):(\S+): (?:Failed to connect to remote host: )?"
)


class SettingsError(ValueError):
    """The service cannot start as configured. The text says what to change."""


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that breaks a rule.

    Attributes:
        field: Path of the field in proto names, such as `jobs[3].stub.id`.
        description: The rule, in words that do not quote the value.
    """

    field: str
    description: str


@dataclass(frozen=True, slots=True)
class QuotaViolation:
    """A limit that was reached.

    Attributes:
        subject: What it is a limit of, such as `pairings of an address`; never whose.
        description: The limit, in words.
    """

    subject: str
    description: str


class ServiceError(Exception):
    """A refusal with everything that its caller may know.

    Attributes:
        code: The gRPC code.
        reason: Name of the error reason without the enum's prefix, such as `STALE_LEASE`.
        message: For humans; holds no secret and nothing of another tenant.
        metadata: Facts for programs, as text.
        retry_after_ms: After how many milliseconds a repeat may help, or None.
        violations: The fields at fault, for `INVALID_ARGUMENT`.
        quota: The limit that was reached, for `RESOURCE_EXHAUSTED`, where naming it helps.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        retry_after_ms: int | None = None,
        violations: Sequence[FieldViolation] = (),
        quota: QuotaViolation | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.metadata: Mapping[str, str] = metadata or {}
        self.retry_after_ms = retry_after_ms
        self.violations = tuple(violations)
        self.quota = quota

    def __str__(self) -> str:
        name = f"{self.code.name}/{self.reason}" if self.reason else self.code.name
        return f"{name}: {self.plain_message}"

    @property
    def plain_message(self) -> str:
        """The message for people: without what gRPC adds for programmers when nothing listens."""
        return _NOT_REACHED.sub(r"cannot connect to \1: ", self.message)

    def to_status(self, domain: str) -> status_pb2.Status:
        """Return the status: one ErrorInfo, then RetryInfo, BadRequest and QuotaFailure where they apply.

        Args:
            domain: The service's error domain, such as `relay.sealwork.dev`.
        """
        info = error_details_pb2.ErrorInfo(reason=self.reason, domain=domain, metadata=self.metadata)
        details = [_packed(info)]
        if self.retry_after_ms is not None:
            delay = duration_pb2.Duration()
            delay.FromMilliseconds(self.retry_after_ms)
            details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
        if self.violations:
            details.append(_packed(_bad_request(self.violations)))
        if self.quota is not None:
            failure = error_details_pb2.QuotaFailure()
            failure.violations.add(subject=self.quota.subject, description=self.quota.description)
            details.append(_packed(failure))
        text = self.message[:_MESSAGE_CHARACTERS]
        return status_pb2.Status(code=self.code.value[0], message=text, details=details)


def invalid_argument(violations: Sequence[FieldViolation], reason: str = "FIELD_INVALID") -> ServiceError:
    """Return the refusal of a request whose fields break rules; the message names the first of them."""
    if not violations:
        return ServiceError(grpc.StatusCode.INVALID_ARGUMENT, reason, "the request is not valid")
    first = violations[0]
    text = f"{first.field}: {first.description}"
    if len(violations) > 1:
        text += f" (and {len(violations) - 1} more)"
    return ServiceError(grpc.StatusCode.INVALID_ARGUMENT, reason, text, violations=violations)


def malformed_request() -> ServiceError:
    """Return the refusal of bytes that are no request message of the method."""
    return ServiceError(
        grpc.StatusCode.INVALID_ARGUMENT,
        "FIELD_INVALID",
        "the request is not a valid message of this method",
    )


def _bad_request(violations: Sequence[FieldViolation]) -> error_details_pb2.BadRequest:
    """Name the violations that fit into the trailers, the first ones first."""
    bad_request = error_details_pb2.BadRequest()
    for violation in violations:
        bad_request.field_violations.add(field=violation.field, description=violation.description)
        if bad_request.ByteSize() > _VIOLATION_BYTES and len(bad_request.field_violations) > 1:
            del bad_request.field_violations[-1]
            break
    return bad_request


def _packed(detail: message.Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed
