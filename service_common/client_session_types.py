"""What the parts of a client's session have in common: the plane, the limits, and how a stream ends."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from sealwork.session.v1 import session_pb2
from service_common.client_frames import FRAME_BYTES
from service_common.errors import ServiceError

FINAL_REASONS: Final = frozenset(
    {
        "BAD_SIGNATURE",
        "DAEMON_BELOW_FLOOR",
        "DEVICE_ID_CONFLICT",
        "DEVICE_REVOKED",
        "PROTOCOL_VIOLATION",
        "UNSUPPORTED_PROTOCOL_VERSION",
    }
)
"""Reasons that another try cannot change."""


class SessionLost(Exception):  # noqa: N818 - says what happened to the stream, not that anything is wrong
    """The stream ended before the reply to a call; whether it was carried out is not known.

    Every call of a session is idempotent, so the caller repeats it by its unary twin.
    """


class BodyTooLarge(Exception):  # noqa: N818 - a choice of way, not a failure
    """The call's body is over what may ride a session: use the unary twin."""


class EndCause(StrEnum):
    """How a stream came to its end.

    `GOODBYE` is ours; `CLOSED` is the server's without a status; `STATUS` is the server's or the network's
    with one; `SILENT` and `ABANDONED` are ours, without a word to the server.
    """

    GOODBYE = "goodbye"
    CLOSED = "closed"
    STATUS = "status"
    SILENT = "silent"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end of a stream.

    Attributes:
        cause: Who ended it.
        lived_seconds: From the welcome on.
        error: The status, when there is one.
    """

    cause: EndCause
    lived_seconds: float
    error: ServiceError | None = None


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """What the server enforces, in seconds, bytes and counts."""

    heartbeat_seconds: float
    liveness_seconds: float
    lease_seconds: float
    renew_seconds: float
    frame_bytes: int
    inline_body_bytes: int
    leases_per_frame: int

    @classmethod
    def of(cls, limits: session_pb2.SessionLimits) -> Self:
        """Read the limits of a Welcome; one that is not set is the documented default."""
        return cls(
            heartbeat_seconds=seconds_of(limits.heartbeat_interval) or 15.0,
            liveness_seconds=seconds_of(limits.liveness_timeout) or 45.0,
            lease_seconds=seconds_of(limits.lease) or 60.0,
            renew_seconds=seconds_of(limits.renew_interval) or 20.0,
            frame_bytes=min(FRAME_BYTES, limits.frame_bytes or FRAME_BYTES),
            inline_body_bytes=limits.inline_body_bytes or 32_768,
            leases_per_frame=limits.leases_per_frame or 500,
        )


@dataclass(frozen=True, slots=True)
class SessionPlane:
    """What differs between the planes.

    Attributes:
        method: Full method name of the stream, with its leading slash.
        item: Class of what the client says, with the arms hello, heartbeat, credit, call, goodbye.
        call: Class of a call that rides the stream: an id and one request.
        read_frame: Parses a frame of the server.
        error_of: What a caller gets for a status.
    """

    method: str
    item: Callable[..., Message]
    call: Callable[..., Message]
    read_frame: Callable[[bytes], Any]
    error_of: Callable[[ServiceError], Exception]


@dataclass(frozen=True, slots=True)
class Hello:
    """What a stream begins with.

    Attributes:
        body: The serialized hello message of the plane.
        credit: The first credit that it states.
    """

    body: bytes
    credit: int


def seconds_of(span: Duration) -> float:
    """Return a Duration in seconds."""
    return span.seconds + span.nanos / 1_000_000_000
