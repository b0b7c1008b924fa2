"""What a client gets for a call that a service, or the way to it, refused."""

from collections.abc import Mapping
from typing import ClassVar

import grpc

from service_common.errors import FieldViolation, ServiceError


class CallError(Exception):
    """A call was refused.

    Attributes:
        code: The gRPC code.
        reason: Name of the service's reason, such as `BAD_SIGNATURE`; empty when the status came from
            something else on the way, or has lost its details there.
        message: The service's text.
        metadata: Facts for programs, as text.
        retry_after_ms: After how many milliseconds a repeat may help; None when the service does not say.
        violations: The fields at fault.
    """

    advice_by_reason: ClassVar[Mapping[str, str]] = {}
    advice_by_code: ClassVar[Mapping[grpc.StatusCode, str]] = {}

    def __init__(self, error: ServiceError) -> None:
        """Tell of what a status said."""
        super().__init__(error.message)
        self.code = error.code
        self.reason = error.reason
        self.message = error.message
        self._plain_message = error.plain_message
        self.metadata = error.metadata
        self.retry_after_ms = error.retry_after_ms
        self.violations: tuple[FieldViolation, ...] = error.violations

    @property
    def advice(self) -> str:
        """What to do about it; empty when nothing is known to help."""
        return self.advice_by_reason.get(self.reason) or self.advice_by_code.get(self.code, "")

    def __str__(self) -> str:
        name = self.reason or self.code.name
        text = f"{name}: {self._plain_message}" if self._plain_message else name
        return f"{text} ({self.advice})" if self.advice else text
