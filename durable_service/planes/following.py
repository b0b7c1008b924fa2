"""What all watches have in common on the wire."""

from typing import Final

from google.protobuf.duration_pb2 import Duration

from durable_service.planes.convert import duration_of, milliseconds_of_duration
from durable_service.planes.validation import Checks
from durable_service.planes.watches import DRAIN_MS
from sealwork.session.v1 import session_pb2

BOOKMARK_MS: Final = 15_000
_SHORTEST_BOOKMARK_MS: Final = 1_000


def bookmark_seconds(interval: Duration | None) -> float:
    """How long a watch may be silent.

    Raises:
        ServiceError: FIELD_INVALID.
    """
    if interval is None:
        return BOOKMARK_MS / 1000
    checks = Checks()
    checks.span("bookmark_interval", interval, _SHORTEST_BOOKMARK_MS, BOOKMARK_MS)
    checks.raise_faults()
    return milliseconds_of_duration(interval) / 1000


def drain_notice() -> session_pb2.DrainNotice:
    """Says that the watch will be ended, and that another one would be welcome elsewhere."""
    return session_pb2.DrainNotice(
        reconnect_after=duration_of(0),
        deadline=duration_of(DRAIN_MS),
        reason=session_pb2.DRAIN_REASON_SERVER_SHUTDOWN,
    )
