"""Between instants and durations of the protocol and plain numbers."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def timestamp_of(milliseconds: int) -> Timestamp:
    """Return an instant in epoch milliseconds as a Timestamp."""
    return Timestamp(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)


def milliseconds_of(stamp: Timestamp) -> int:
    """Return a Timestamp in epoch milliseconds, fractions cut off."""
    return stamp.seconds * 1000 + stamp.nanos // 1_000_000


def duration_of(milliseconds: int) -> Duration:
    """Return milliseconds as a Duration."""
    return Duration(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)


def duration_ms(span: Duration) -> int:
    """Return a Duration in milliseconds, fractions cut off."""
    return span.seconds * 1000 + span.nanos // 1_000_000
