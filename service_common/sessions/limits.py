"""What a server enforces on a stream, and how it tells the client."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, Self

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sealwork.session.v1 import session_pb2

# seq, ack_seq, and the tags and lengths around one item, at the most.
_FRAME_OVERHEAD_BYTES = 64


class SpanSettings(Protocol):
    """What an operator sets of the spans of streams."""

    @property
    def lease_ms(self) -> int: ...
    @property
    def heartbeat_seconds(self) -> float: ...
    @property
    def liveness_seconds(self) -> float: ...
    @property
    def stream_age_seconds(self) -> float: ...
    @property
    def drain_grace_seconds(self) -> float: ...


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """Spans in milliseconds and bounds in bytes or items; see SessionLimits in the protocol.

    Attributes:
        stream_age_ms: mean age at which a stream is asked to move, spread by 20 % either way.
        drain_ms: how long a client has between DrainNotice and the end of its stream.
        concurrent_calls: how many calls of one stream are under way at the same time.
        reconnect_spread_ms: clients are told to wait a random part of this on drain.
    """

    hello_ms: int = 10_000
    heartbeat_ms: int = 15_000
    liveness_ms: int = 45_000
    lease_ms: int = 60_000
    renew_ms: int = 20_000
    stream_age_ms: int = 1_800_000
    drain_ms: int = 20_000
    reconnect_spread_ms: int = 10_000
    write_stall_ms: int = 10_000
    grant_acknowledgement_ms: int = 10_000
    frame_bytes: int = 65_536
    inline_body_bytes: int = 32_768
    leases_per_frame: int = 500
    queued_notices: int = 1_024
    queued_controls: int = 1_024
    concurrent_calls: int = 16
    frame_errors: int = 20
    frame_error_window_ms: int = 60_000

    @classmethod
    def of_settings(cls, settings: SpanSettings) -> Self:
        """Spans that follow from the settings: three renewals a lease, streams gone before the grace is."""
        grace_ms = round(settings.drain_grace_seconds * 1000)
        drain_ms = min(20_000, grace_ms // 2)
        return cls(
            heartbeat_ms=round(settings.heartbeat_seconds * 1000),
            liveness_ms=round(settings.liveness_seconds * 1000),
            lease_ms=settings.lease_ms,
            renew_ms=settings.lease_ms // 3,
            stream_age_ms=round(settings.stream_age_seconds * 1000),
            drain_ms=drain_ms,
            reconnect_spread_ms=drain_ms // 2,
        )

    @property
    def reply_bytes(self) -> int:
        """Largest item that fits a frame of ours with what is around it."""
        return self.frame_bytes - _FRAME_OVERHEAD_BYTES

    def to_proto(self) -> session_pb2.SessionLimits:
        """The part that a client must know."""
        return session_pb2.SessionLimits(
            heartbeat_interval=_duration(self.heartbeat_ms),
            liveness_timeout=_duration(self.liveness_ms),
            lease=_duration(self.lease_ms),
            renew_interval=_duration(self.renew_ms),
            stream_age=_duration(self.stream_age_ms),
            frame_bytes=self.frame_bytes,
            inline_body_bytes=self.inline_body_bytes,
            leases_per_frame=self.leases_per_frame,
            grant_acknowledgement=_duration(self.grant_acknowledgement_ms),
            queued_items=self.queued_notices,
        )


def agreed_capabilities(
    offered: Iterable[session_pb2.Capability.ValueType],
    known: frozenset[session_pb2.Capability.ValueType],
) -> frozenset[session_pb2.Capability.ValueType]:
    """Capabilities that both sides list; values of a newer peer are ignored."""
    return known.intersection(offered)


def welcome(
    *,
    session_id: str,
    epoch: int,
    times: SessionTimes,
    capabilities: Iterable[session_pb2.Capability.ValueType],
    now_ms: int,
    instance: str,
    offered_version: str | None = None,
) -> session_pb2.Welcome:
    """The answer to an accepted hello."""
    return session_pb2.Welcome(
        session_id=session_id,
        session_epoch=epoch,
        limits=times.to_proto(),
        capabilities=sorted(capabilities),
        server_time=Timestamp(seconds=now_ms // 1000, nanos=now_ms % 1000 * 1_000_000),
        server_instance=instance,
        offered_version=offered_version,
    )


def _duration(milliseconds: int) -> Duration:
    return Duration(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)
