"""How a stream ended, as the relay records it: only Goodbye is clean, whatever gRPC makes of the rest."""

import grpc
import grpc.aio
import pytest

from sealwork.relay.v1 import daemon_plane_pb2
from sealwork.session.v1 import session_pb2
from tests.harness.fault_proxy import fault_proxy
from tests.relay_service.raw_client import RawParty
from tests.relay_service.relay_fixture import RelayUnderTest, ref

PLANES = pytest.mark.parametrize("plane", ["daemon", "site"])


def party(relay: RelayUnderTest, plane: str, channel: object = None) -> RawParty:
    return relay.daemon(channel=channel) if plane == "daemon" else relay.site(channel=channel)


async def ended(relay: RelayUnderTest, plane: str, end: str) -> None:
    await relay.ended(plane, end)
    assert relay.ends(plane) == {end: 1}
    assert relay.open_streams(plane) == 0
    assert [len(server.relay.daemons) + len(server.relay.sites) for server in relay.servers] == [0] * len(
        relay.servers
    )


@PLANES
@pytest.mark.parametrize("reason", ["", "bye", "x" * 300])
async def test_goodbye(relay: RelayUnderTest, plane: str, reason: str) -> None:
    stream = await party(relay, plane).connect()
    await stream.send(goodbye=session_pb2.Goodbye(reason=reason))
    assert await stream.end() is None
    await ended(relay, plane, "goodbye")


@PLANES
async def test_goodbye_in_the_frame_of_the_hello(relay: RelayUnderTest, plane: str) -> None:
    caller = party(relay, plane)
    stream = caller.open()
    nonce = (await stream.next("challenge")).nonce
    await stream.send(
        hello=caller.sign(caller.hello().SerializeToString(), nonce), goodbye=session_pb2.Goodbye()
    )
    assert await stream.end() is None
    await stream.next("welcome")
    await ended(relay, plane, "goodbye")


async def test_what_was_asked_before_a_goodbye_is_answered(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect()
    pings = [stream.item(heartbeat=session_pb2.Heartbeat(ping_id=number)) for number in range(1, 101)]
    await stream.send_items(
        *pings,
        stream.item(goodbye=session_pb2.Goodbye()),
        stream.item(heartbeat=session_pb2.Heartbeat(ping_id=999)),
    )
    assert await stream.end() is None
    assert [beat.pong_id for beat in stream.take("heartbeat")] == list(range(1, 101))


@PLANES
async def test_cancelled_by_the_client(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    stream.call.cancel()
    await ended(relay, plane, "lost")


@PLANES
async def test_closed_by_the_client_for_sending_without_a_goodbye(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    await stream.call.done_writing()
    await ended(relay, plane, "lost")


@PLANES
async def test_the_deadline_of_the_call(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect(timeout=0.3)
    assert await stream.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await ended(relay, plane, "lost")


@PLANES
@pytest.mark.parametrize("how", ["reset", "fin"])
async def test_the_end_of_the_connection(relay: RelayUnderTest, plane: str, how: str) -> None:
    async with (
        fault_proxy("127.0.0.1", relay.server_of(plane).ports[0]) as proxy,
        grpc.aio.insecure_channel(proxy.address) as channel,
    ):
        await party(relay, plane, channel).connect()
        await (proxy.reset_all() if how == "reset" else proxy.close_all())
        await ended(relay, plane, "lost")


@PLANES
async def test_the_end_of_the_server(relay: RelayUnderTest, plane: str) -> None:
    stream = await party(relay, plane).connect()
    await relay.server_of(plane).stop()
    assert await stream.code() is grpc.StatusCode.UNAVAILABLE
    await ended(relay, plane, "lost")


@PLANES
async def test_a_stream_that_was_never_welcomed_is_not_counted(relay: RelayUnderTest, plane: str) -> None:
    caller = party(relay, plane)
    gone, closed = caller.open(), caller.open()
    await gone.next("challenge")
    gone.call.cancel()
    await closed.next("challenge")
    await closed.call.done_writing()
    assert await closed.end() is not None
    assert relay.ends(plane) == {}
    assert relay.open_streams(plane) == 0


async def test_a_burst_of_lost_streams_leaves_nothing_behind(relay: RelayUnderTest) -> None:
    await relay.enqueue("job-1")
    for number in range(1, 31):
        stream = await relay.daemon().connect(limit=1)
        lease = ref(await stream.next("granted"))
        if number % 2:
            await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
            await stream.settle()
        stream.call.cancel()
        await relay.ended("daemon", "lost", number)
        if number % 2:
            release = daemon_plane_pb2.ReleaseLeasesRequest(
                leases=[lease], reason=daemon_plane_pb2.RELEASE_REASON_SHUTDOWN
            )
            await relay.daemon().call("ReleaseLeases", release)
        await relay.becomes("job-1", "queued")
    assert relay.ends("daemon") == {"lost": 30}
    assert relay.open_streams("daemon") == 0
    assert len(relay.server_of("daemon").relay.daemons) == 0
