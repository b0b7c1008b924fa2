"""What a client is told of the limits."""

from google.protobuf.duration_pb2 import Duration

from sealwork.session.v1 import session_pb2
from service_common.sessions.limits import SessionTimes, agreed_capabilities, welcome

PAYLOAD, RESULT = session_pb2.CAPABILITY_INLINE_PAYLOAD, session_pb2.CAPABILITY_INLINE_RESULT


def test_the_defaults_are_those_of_the_protocol() -> None:
    limits = SessionTimes().to_proto()
    assert limits == session_pb2.SessionLimits(
        heartbeat_interval=Duration(seconds=15),
        liveness_timeout=Duration(seconds=45),
        lease=Duration(seconds=60),
        renew_interval=Duration(seconds=20),
        stream_age=Duration(seconds=1_800),
        frame_bytes=65_536,
        inline_body_bytes=32_768,
        leases_per_frame=500,
        grant_acknowledgement=Duration(seconds=10),
        queued_items=1_024,
    )


def test_milliseconds_survive() -> None:
    limits = SessionTimes(heartbeat_ms=1_234, lease_ms=999).to_proto()
    assert (limits.heartbeat_interval.seconds, limits.heartbeat_interval.nanos) == (1, 234_000_000)
    assert (limits.lease.seconds, limits.lease.nanos) == (0, 999_000_000)


def test_what_fits_a_frame_is_less_than_a_frame() -> None:
    assert SessionTimes(frame_bytes=1_000).reply_bytes == 936


def test_capabilities_are_in_force_when_both_sides_list_them() -> None:
    known = frozenset({PAYLOAD})
    assert agreed_capabilities([PAYLOAD, RESULT], known) == {PAYLOAD}
    assert agreed_capabilities([77, 0, PAYLOAD, PAYLOAD], known) == {PAYLOAD}  # type: ignore[list-item]
    assert agreed_capabilities([], known) == frozenset()


def test_the_welcome() -> None:
    message = welcome(
        session_id="s",
        epoch=2**63,
        times=SessionTimes(),
        capabilities=[RESULT, PAYLOAD],
        now_ms=1_700_000_000_123,
        instance="relay-1",
        offered_version="1.2.3",
    )
    assert (message.session_id, message.session_epoch) == ("s", 2**63)
    assert list(message.capabilities) == [PAYLOAD, RESULT]
    assert message.server_time.ToMilliseconds() == 1_700_000_000_123
    assert (message.server_instance, message.offered_version) == ("relay-1", "1.2.3")
