"""Frames and items that are not as they should be: reported, and the stream lives on, within reason."""

from typing import Any

import grpc
import pytest

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from sealwork.session.v1 import session_pb2
from tests.relay_service.raw_client import RawParty, RawStream, Refusal, message_type
from tests.relay_service.relay_fixture import RelayUnderTest

PLANES = pytest.mark.parametrize("plane", ["daemon", "site"])
MIB = 1024 * 1024
# An item whose arm is field 99, of 3 bytes.
UNKNOWN_ITEM = bytes([0x1A, 6, 0x9A, 0x06, 3, 1, 2, 3])


def party(relay: RelayUnderTest, plane: str) -> RawParty:
    return relay.daemon() if plane == "daemon" else relay.site()


def frame(stream: RawStream, plane: str, *items: Any) -> bytes:
    service = "DaemonPlaneService" if plane == "daemon" else "SitePlaneService"
    stream.seq += 1
    message = message_type(service, "Session")(seq=stream.seq, items=items)
    serialized: bytes = message.SerializeToString()
    return serialized


def session_of(relay: RelayUnderTest, plane: str) -> Any:
    served = relay.server_of(plane).relay
    sessions: Any = served.daemons if plane == "daemon" else served.sites
    (session,) = sessions
    return session


async def violation(relay: RelayUnderTest, plane: str, stream: RawStream) -> None:
    refusal = await stream.end()
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "PROTOCOL_VIOLATION")
    await relay.ended(plane, "refused")


@PLANES
async def test_an_item_of_a_newer_peer_is_ignored_and_counted(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    ping = stream.item(heartbeat=session_pb2.Heartbeat(ping_id=5))
    await stream.send_bytes(UNKNOWN_ITEM + frame(stream, plane, ping, stream.item()) + UNKNOWN_ITEM)
    assert (await stream.next("heartbeat")).pong_id == 5
    await stream.settle()
    assert not stream.take("frame_error")
    assert session_of(relay, plane).unknown_items == 3


@PLANES
async def test_any_number_of_unknown_items_is_ignored(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    for _ in range(30):
        await stream.send_bytes(UNKNOWN_ITEM * 200)
    await stream.settle()
    assert session_of(relay, plane).unknown_items == 6_000


@PLANES
@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xff\xff",
        # An item that says it is longer than its frame.
        bytes([0x1A, 0x7F, 1]),
        # A goodbye whose reason is not UTF-8.
        None,
    ],
    ids=["garbage", "truncated", "invalid-utf-8"],
)
async def test_bytes_that_are_no_frame(relay: RelayUnderTest, plane: str, raw: bytes | None) -> None:
    stream = await party(relay, plane).connect()
    stream.seq += 1
    if raw is None:
        arm = 0x5A if plane == "daemon" else 0x2A
        raw = bytes([0x1A, 6, arm, 4, 0x0A, 2, 0xC3, 0x28])
    await stream.send_bytes(raw)
    error = await stream.next("frame_error")
    assert (error.frame_seq, error.item_index) == (2, 0)
    refusal = Refusal.of_status(error.status)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    await stream.send_bytes(b"\xff")
    assert (await stream.next("frame_error")).frame_seq == 3
    await stream.settle()


@PLANES
async def test_twenty_bad_items_within_a_minute_end_the_stream(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    for number in range(19):
        await stream.send_bytes(b"\xff")
        assert (await stream.next("frame_error")).frame_seq == number + 2
    await stream.send_bytes(b"\xff")
    await violation(relay, plane, stream)


@PLANES
async def test_bad_items_now_and_then_do_not(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    for _ in range(3):
        for _ in range(15):
            await stream.send_bytes(b"\xff")
            await stream.next("frame_error")
        await relay.pass_time(61_000, alive=[stream])
    await stream.settle()


async def test_a_bad_item_does_not_stop_the_others_of_its_frame(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect()
    renew = daemon_plane_pb2.Renew(renewal_id=8, leases=[job_pb2.LeaseRef(job_id="j", lease_id="l")])
    seq = await stream.send_items(
        stream.item(heartbeat=session_pb2.Heartbeat()),
        stream.item(cancel_ack=daemon_plane_pb2.CancelAck()),
        stream.item(renew=renew),
    )
    error = await stream.next("frame_error")
    assert (error.frame_seq, error.item_index) == (seq, 1)
    assert (await _answered(stream)).renewal_id == 8


async def _answered(stream: RawStream) -> Any:
    while not (verdicts := await stream.next("verdicts")).renewal_id:
        pass
    return verdicts


# -- size ---------------------------------------------------------------------------------


def padded(stream: RawStream, plane: str, size: int) -> bytes:
    """A frame of exactly this many bytes, nearly all of them of unknown items."""
    start = frame(stream, plane, stream.item(heartbeat=session_pb2.Heartbeat(ping_id=9)))
    rest = size - len(start)
    filler = bytes(rest - _overhead(rest))
    padding = b"\x9a\x06" + _varint(len(filler)) + filler
    assert len(start + padding) == size
    return start + padding


def _overhead(rest: int) -> int:
    return 2 + len(_varint(rest - 5))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@PLANES
async def test_a_frame_of_64_kib_is_read_and_a_larger_one_ends_the_stream(
    relay: RelayUnderTest, plane: str
) -> None:
    stream = await party(relay, plane).connect()
    await stream.send_bytes(padded(stream, plane, 65_536))
    assert (await stream.next("heartbeat")).pong_id == 9
    await stream.send_bytes(padded(stream, plane, 65_537))
    await violation(relay, plane, stream)
    assert not stream.take("heartbeat")


@PLANES
async def test_a_frame_of_5_mib(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    await stream.send_bytes(padded(stream, plane, 5 * MIB))
    await violation(relay, plane, stream)


@PLANES
async def test_a_frame_beyond_what_grpc_takes_is_a_lost_stream(relay: RelayUnderTest, plane: str) -> None:
    """gRPC itself ends it, and says so to the client alone."""
    stream = await party(relay, plane).connect()
    await stream.send_bytes(padded(stream, plane, 8 * MIB + 1))
    assert await stream.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await relay.ended(plane, "lost")
    assert relay.open_streams(plane) == 0
    await (await party(relay, plane).connect()).settle()


async def test_oversized_frames_leave_nothing_behind(relay: RelayUnderTest) -> None:
    for number in range(1, 21):
        stream = await relay.daemon().connect(limit=1)
        await stream.send_bytes(padded(stream, "daemon", 70_000))
        assert await stream.end() is not None
        await relay.ended("daemon", "refused", number)
    assert len(relay.server_of("daemon").relay.daemons) == 0
    await relay.enqueue("job-1")
    assert await relay.state("job-1") == "queued"
