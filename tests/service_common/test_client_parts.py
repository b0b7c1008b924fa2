"""Frames as bytes, and the delays between tries."""

from random import Random
from typing import Any

import pytest

from sealwork.relay.v1 import site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.client_backoff import Backoff
from service_common.client_frames import OutboundFrames
from service_common.client_session_types import StreamLimits

Frame: Any = site_plane_pb2.SitePlaneServiceSessionRequest


def item(ping: int) -> bytes:
    return site_plane_pb2.SiteItem(heartbeat=session_pb2.Heartbeat(ping_id=ping)).SerializeToString()


def test_a_frame_is_what_protobuf_would_have_written() -> None:
    outbound = OutboundFrames()
    outbound.add(item(1), control=False)
    outbound.add(item(300), control=False)
    expected = Frame(
        seq=1,
        ack_seq=70_000,
        items=[
            {"heartbeat": {"ping_id": 1}},
            {"heartbeat": {"ping_id": 300}},
        ],
    )

    assert outbound.take(ack_seq=70_000) == expected.SerializeToString(deterministic=True)
    assert outbound.take(ack_seq=70_000) == b""


def test_frames_are_numbered_and_nothing_to_acknowledge_is_left_out() -> None:
    outbound = OutboundFrames()
    numbers = []
    for _ in range(200):
        outbound.add(item(1), control=False)
        frame = Frame.FromString(outbound.take(ack_seq=0))
        numbers.append(frame.seq)
        assert frame.ack_seq == 0

    assert numbers == list(range(1, 201))


def test_an_empty_item_survives() -> None:
    outbound = OutboundFrames()
    outbound.add(b"", control=False)

    assert len(Frame.FromString(outbound.take(ack_seq=0)).items) == 1


def test_control_overtakes_the_rest_and_nothing_overtakes_control() -> None:
    outbound = OutboundFrames(frame_bytes=60)
    for ping in (1, 2, 3):
        outbound.add(item(ping), control=False)
    big = site_plane_pb2.SiteItem(goodbye=session_pb2.Goodbye(reason="x" * 28)).SerializeToString()
    outbound.add(item(9), control=True)
    outbound.add(big, control=True)
    frames = []
    while frame := outbound.take(ack_seq=0):
        assert len(frame) <= 60
        frames.append([each.WhichOneof("item") for each in Frame.FromString(frame).items])

    assert frames == [["heartbeat"], ["goodbye"], ["heartbeat"] * 3]


def test_an_item_that_fits_into_no_frame_is_refused() -> None:
    outbound = OutboundFrames(frame_bytes=100)
    with pytest.raises(ValueError, match="an item of 80 bytes does not fit into a frame of 100"):
        outbound.add(b"x" * 80, control=False)
    assert len(outbound) == 0


def test_the_largest_item_there_may_be_fits() -> None:
    outbound = OutboundFrames()
    largest = 65_536 - 22 - 4
    outbound.add(b"x" * largest, control=False)

    assert len(outbound.take(ack_seq=2**63)) <= 65_536
    with pytest.raises(ValueError, match="does not fit"):
        outbound.add(b"x" * (largest + 1), control=False)


class Highest(Random):
    """Always the upper end of the range."""

    def uniform(self, a: float, b: float) -> float:
        return b


def test_delays_double_from_half_a_second_to_thirty_after_a_first_of_two() -> None:
    backoff = Backoff(Highest())
    delays = []
    for _ in range(8):
        delays.append(backoff.delay())
        backoff.fail()

    assert delays == [2.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_the_jitter_is_full() -> None:
    backoff = Backoff(Random(1))
    for _ in range(3):
        backoff.fail()
    delays = [backoff.delay() for _ in range(1_000)]

    assert min(delays) < 0.1
    assert max(delays) > 3.9
    assert max(delays) <= 4.0


def test_what_the_server_asks_for_comes_first_and_jitter_on_top() -> None:
    backoff = Backoff(Highest())

    assert backoff.delay(at_least=7.0) == 9.0


def test_a_client_may_fail_for_years() -> None:
    backoff = Backoff(Highest())
    backoff.failures = 10**9
    assert backoff.delay() == 30.0
    backoff.reset()
    assert backoff.delay() == 2.0


def test_limits_that_are_not_set_are_the_documented_ones() -> None:
    limits = StreamLimits.of(session_pb2.SessionLimits())

    assert limits == StreamLimits(
        heartbeat_seconds=15,
        liveness_seconds=45,
        lease_seconds=60,
        renew_seconds=20,
        frame_bytes=65_536,
        inline_body_bytes=32_768,
        leases_per_frame=500,
    )
