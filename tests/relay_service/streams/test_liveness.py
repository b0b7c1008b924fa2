"""Signs of life, and the ends that time brings: silence, age, drain."""

from typing import Any

import grpc
import pytest

from sealwork.relay.v1 import daemon_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.sessions.limits import SessionTimes
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import RawParty
from tests.relay_service.relay_fixture import START_MS, RelayUnderTest, Serve, ref

PLANES = pytest.mark.parametrize("plane", ["daemon", "site"])
DRAINING = (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")


def party(relay: RelayUnderTest, plane: str) -> RawParty:
    return relay.daemon() if plane == "daemon" else relay.site()


@PLANES
async def test_a_ping_is_echoed(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    await stream.send(heartbeat=session_pb2.Heartbeat(ping_id=2**64 - 1))
    echo = await stream.next("heartbeat")
    assert (echo.ping_id, echo.pong_id) == (0, 2**64 - 1)


@PLANES
async def test_a_heartbeat_that_asks_for_no_echo_gets_none(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    await stream.send(heartbeat=session_pb2.Heartbeat())
    await stream.send(heartbeat=session_pb2.Heartbeat(pong_id=4))
    await stream.settle()
    assert not stream.take("heartbeat")


@PLANES
async def test_the_relay_says_something_at_least_every_15_seconds(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    await stream.settle()
    for _ in range(2):
        await relay.elapse(14_999)
        assert not stream.take("heartbeat")
        await relay.elapse(1)
        beat = await stream.next("heartbeat")
        assert (beat.ping_id, beat.pong_id) == (0, 0)


async def test_no_heartbeat_while_something_else_is_said(relay: RelayUnderTest) -> None:
    """An idle stream carries heartbeats and nothing else; a busy one carries none."""
    stream = await relay.daemon().connect(limit=9)
    await stream.settle()
    for number in range(3):
        await relay.elapse(10_000)
        await relay.enqueue(f"job-{number}", kind="llm.generate")
        lease = ref(await stream.next("granted"))
        await relay.seal(lease)
        await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
        await stream.next("payload_ready")
    assert not stream.take("heartbeat")


async def test_an_idle_device_is_sent_heartbeats_alone(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect()
    await stream.settle()
    before = len(stream.frames)
    for _ in range(20):
        await relay.elapse(15_000)
        await stream.next("heartbeat")
        await stream.send(heartbeat=session_pb2.Heartbeat())
    arms = [item.WhichOneof("item") for frame in stream.frames[before:] for item in frame.items]
    assert arms == ["heartbeat"] * 20


@PLANES
async def test_45_seconds_of_silence_end_the_stream(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    await stream.settle()
    await relay.elapse(44_999)
    await stream.next("heartbeat")
    assert not stream.closed
    await relay.elapse(1)
    refusal = await stream.end()
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SESSION_SILENT")
    await relay.ended(plane, "silent")
    assert relay.open_streams(plane) == 0


@PLANES
async def test_any_frame_is_a_sign_of_life(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    for frame in (b"\xff\xff", stream_of_unknown(), b""):
        await relay.elapse(44_000)
        await stream.send_bytes(frame)
        await stream.settle()


def stream_of_unknown() -> bytes:
    """A frame with one item whose arm is of a newer peer: field 99, empty."""
    return bytes([0x1A, 3, 0x9A, 0x06, 0])


async def test_silence_does_not_cost_a_lease(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    await relay.seal(lease)
    await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
    await stream.settle()
    await relay.elapse(45_000)
    await relay.ended("daemon", "silent")
    assert await relay.state("job-1") == "ready"
    stream = await relay.daemon().connect(limit=0, inventory={"leases": [lease]})
    (verdict,) = (await stream.next("verdicts")).verdicts
    assert verdict.remaining.ToMilliseconds() == 60_000


# -- age and drain ------------------------------------------------------------------------


@PLANES
async def test_an_old_stream_is_asked_to_move_and_then_ended(plane: str, serve: Serve) -> None:
    async with serve(SessionTimes(stream_age_ms=100_000)) as relay:
        stream = await party(relay, plane).connect()
        # Spread by a fifth either way, so that not all streams move at once.
        await relay.pass_time(79_999, alive=[stream])
        assert not stream.take("drain_notice")
        notices: list[Any] = []
        while not notices:
            await relay.pass_time(5_000, alive=[stream])
            notices = stream.take("drain_notice")
            assert relay.clock.now_ms() < START_MS + 125_000
        (notice,) = notices
        assert notice.reason == session_pb2.DRAIN_REASON_STREAM_AGE
        assert notice.deadline.ToMilliseconds() == 20_000
        assert 0 <= notice.reconnect_after.ToMilliseconds() <= 10_000
        await relay.pass_time(20_000)
        refusal = await stream.end()
        assert refusal is not None
        assert (refusal.code, refusal.reason) == DRAINING
        assert refusal.retry_after_ms is not None
        await relay.ended(plane, "drained")


async def test_streams_age_at_different_times(serve: Serve) -> None:
    async with serve(SessionTimes(stream_age_ms=100_000)) as relay:
        staying = [await relay.site().connect() for _ in range(8)]
        moved = []
        for _ in range(12):
            await relay.pass_time(10_000, alive=staying)
            moving = [stream for stream in staying if stream.take("drain_notice")]
            staying = [stream for stream in staying if stream not in moving]
            moved.append(len(moving))
        assert moved[:8] == [0] * 8
        assert sum(moved) == 8
        assert max(moved) < 8


async def test_a_stream_that_is_asked_to_move_gets_no_more_work(relay: RelayUnderTest) -> None:
    stream, site = await relay.daemon().connect(limit=9), await relay.site().connect()
    for server in relay.servers:
        for session in (*server.relay.daemons, *server.relay.sites):
            session.ask_to_move(session_pb2.DRAIN_REASON_REBALANCE)
    await stream.next("drain_notice")
    await site.next("drain_notice")
    await relay.enqueue("job-1")
    await stream.settle()
    assert not stream.take("granted")
    # The device moves before the old stream ends, and there the work is.
    successor = await relay.daemon().connect(limit=1)
    await successor.next("granted")
    await site.settle()
    assert not site.take("notice")
    assert (await (await relay.site().connect()).next("notice")).HasField("please_seal")


@PLANES
async def test_a_drain_asks_every_stream_to_move(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    greeting = party(relay, plane).open()
    await eventually(lambda: greeting.frames)
    for server in relay.servers:
        server.drain.begin()
    leaving = relay.drain()
    notice = await stream.next("drain_notice")
    assert notice.reason == session_pb2.DRAIN_REASON_SERVER_SHUTDOWN

    # One that was being greeted was not asked, and is not let in either.
    await party(relay, plane).greet(greeting)
    late = party(relay, plane).open()
    for refused in (await greeting.end(), await late.end()):
        assert refused is not None
        assert (refused.code, refused.reason) == DRAINING

    assert not leaving.done()
    await stream.send(goodbye=session_pb2.Goodbye())
    assert await stream.end() is None
    await leaving


async def test_a_drain_ends_who_does_not_move(relay: RelayUnderTest) -> None:
    streams = [await relay.daemon().connect(), await relay.site().connect()]
    for server in relay.servers:
        server.drain.begin()
    leaving = relay.drain()
    for stream in streams:
        await stream.next("drain_notice")
    await relay.pass_time(20_000)
    for stream in streams:
        refusal = await stream.end()
        assert refusal is not None
        assert (refusal.code, refusal.reason) == DRAINING
    await leaving
