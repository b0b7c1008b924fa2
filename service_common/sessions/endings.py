"""How a stream comes to its end, and what the peer is told."""

from enum import StrEnum
from typing import Final

import grpc

from service_common.errors import ServiceError

STANDSTILL_SECONDS: Final = 1.0
"""A timer that fires this much too late says that this process stood still, not that its peer did."""


class EndReason(StrEnum):
    """How a stream came to its end; a label for logs and metrics."""

    GOODBYE = "goodbye"
    LOST = "lost"
    SILENT = "silent"
    SLOW = "slow"
    SUPERSEDED = "superseded"
    DRAINED = "drained"
    REFUSED = "refused"


def protocol_violation(message: str) -> ServiceError:
    """The stream cannot go on: the client broke the protocol."""
    return ServiceError(grpc.StatusCode.INVALID_ARGUMENT, "PROTOCOL_VIOLATION", message)


def session_silent() -> ServiceError:
    """Nothing came for the liveness timeout."""
    return ServiceError(
        grpc.StatusCode.UNAVAILABLE,
        "SESSION_SILENT",
        "nothing was received for longer than the liveness timeout; reconnect with jitter",
    )


def slow_consumer() -> ServiceError:
    """The client does not read what it is sent."""
    return ServiceError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "SLOW_CONSUMER",
        "the stream is not being read; reconnect with less credit",
        retry_after_ms=0,
    )


def server_draining(retry_after_ms: int = 1_000) -> ServiceError:
    """This replica is leaving."""
    return ServiceError(
        grpc.StatusCode.UNAVAILABLE,
        "SERVER_DRAINING",
        "this server is shutting down or moving its streams; reconnect",
        retry_after_ms=retry_after_ms,
    )
