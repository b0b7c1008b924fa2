"""Clients that do not read what they are sent: ended in time, bounded until then, and alone."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.sessions.limits import SessionTimes
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import RawParty, RawStream, message_type
from tests.relay_service.relay_fixture import RelayUnderTest, Serve, ref

SLOW = (grpc.StatusCode.RESOURCE_EXHAUSTED, "SLOW_CONSUMER")


async def unread(caller: RawParty, **fields: Any) -> RawStream:
    """A stream that was greeted and whose client reads nothing from then on."""
    stream = caller.open(reading=False)
    frame = message_type(caller.service, "Session", answer=True).FromString(await stream.call.read())
    hello = caller.hello(**fields).SerializeToString()
    await stream.send(hello=caller.sign(hello, frame.items[0].challenge.nonce))
    return stream


async def finished_job(relay: RelayUnderTest, job_id: str, body: bytes) -> None:
    """A finished job with a result of this body, by unary calls alone."""
    daemon = relay.daemon("runner-2")
    await relay.enqueue(job_id)
    claim = daemon_plane_pb2.ClaimJobsRequest(request_id=job_id, matrix=daemon.hello().matrix, max_jobs=1)
    (granted,) = (await daemon.call("ClaimJobs", claim)).granted
    done = daemon_plane_pb2.CompleteJobRequest(
        lease=ref(granted),
        envelope=relay.result("runner-2", body=body),
        disposition=job_pb2.DISPOSITION_OK,
    )
    await daemon.call("CompleteJob", done)


def waiting(relay: RelayUnderTest) -> int:
    return sum(session.outbound.waiting for session in relay.server.relay.sites)


async def ask(stream: RawStream, count: int) -> None:
    """Asks for the result of job-1, 30,000 bytes, again and again; not so often that asking would block."""
    item = stream.item(
        call=site_plane_pb2.SiteCall(id=1, get_result=site_plane_pb2.GetResultRequest(job_id="job-1"))
    )
    for _ in range(count // 8):
        await stream.send_items(*[item] * 8)


async def stuffed(relay: RelayUnderTest) -> RawStream:
    """A stream whose client asks for much and reads nothing, until the relay's writes stand still."""
    await finished_job(relay, "job-1", bytes(30_000))
    stream = await unread(relay.site())
    await ask(stream, 800)
    await eventually(lambda: waiting(relay) >= 32, 20, lambda: f"{waiting(relay)} answers wait")
    return stream


@pytest.fixture
async def relay(serve: Serve) -> AsyncIterator[RelayUnderTest]:
    """A relay whose lanes are short, so that a few megabytes fill one."""
    async with serve(SessionTimes(queued_controls=64)) as running:
        yield running


async def test_a_client_that_reads_nothing_is_ended_within_the_stall_bound(relay: RelayUnderTest) -> None:
    stream = await stuffed(relay)
    # However much it asks for, no more is answered than half a lane, and no more is read.
    assert waiting(relay) <= 33
    await relay.clock.advance_async(9_000)
    assert relay.ends("site") == {}
    await relay.clock.advance_async(1_000)
    await relay.ended("site", "slow")
    assert len(relay.server.relay.sites) == 0
    assert relay.open_streams("site") == 0
    # When it reads after all, it finds out why.
    refusal = await stream.end(20)
    assert refusal is not None
    assert (refusal.code, refusal.reason) == SLOW
    assert refusal.retry_after_ms == 0


async def test_others_do_not_notice(relay: RelayUnderTest) -> None:
    stream = await stuffed(relay)
    site = await relay.site().connect(process_id="process-2")
    daemon = await relay.daemon().connect(limit=1)
    await daemon.next("verdicts")
    await relay.enqueue("job-2")
    lease = ref(await daemon.next("granted"))
    await relay.cancel("job-2")
    assert [verdict.lease for verdict in (await daemon.next("verdicts")).verdicts] == [lease]
    await site.settle()
    assert 32 <= waiting(relay) <= 33
    stream.call.cancel()


async def test_what_it_was_sent_goes_to_another_stream_of_its_site(relay: RelayUnderTest) -> None:
    stream = await stuffed(relay)
    await relay.enqueue("job-2")
    await relay.cancel("job-2")
    other = await relay.site().connect(process_id="process-2")
    await relay.clock.advance_async(10_000)
    await relay.ended("site", "slow")
    assert {(await other.next("notice")).job_id for _ in range(2)} == {"job-1", "job-2"}
    stream.call.cancel()


async def test_nothing_of_ours_waits_until_it_takes_the_status(relay: RelayUnderTest) -> None:
    stream = await stuffed(relay)
    await relay.clock.advance_async(10_000)
    await relay.ended("site", "slow")
    assert handled(relay) == 0
    await relay.clock.advance_async(10_000)
    await eventually(lambda: handled(relay) == 1)
    refusal = await stream.end(20)
    assert refusal is not None
    assert refusal.reason == "SLOW_CONSUMER"


async def test_a_drain_does_not_wait_for_it(relay: RelayUnderTest) -> None:
    stream = await stuffed(relay)
    leaving = relay.drain()
    await relay.pass_time(20_000)
    await leaving
    assert relay.ends("site") == {"slow": 1}
    stream.call.cancel()


def handled(relay: RelayUnderTest) -> int:
    """Streams of sites whose handler has ended, with a status of ours or cancelled."""
    labels = {
        "grpc_service": "sealwork.relay.v1.SitePlaneService",
        "grpc_method": "Session",
        "grpc_type": "bidi_stream",
    }
    codes = ("OK", "CANCELLED", "RESOURCE_EXHAUSTED")
    values = [
        relay.server.metrics.value("grpc_server_handled_total", grpc_code=code, **labels) for code in codes
    ]
    return int(sum(values))


async def test_a_device_that_does_not_answer_is_granted_no_more_until_it_does(relay: RelayUnderTest) -> None:
    """Or its jobs would come back to it every ten seconds for as long as its stream lives."""
    stream = await unread(relay.daemon(), limit=10)
    await relay.enqueue("job-1")
    await relay.becomes("job-1", "awaiting-payload")
    await relay.seal(await relay.lease_of("job-1"))
    await relay.clock.advance_async(10_000)
    await relay.becomes("job-1", "queued")
    # It stays where it is for others, and comes back at the first sign of life.
    other = await relay.daemon("runner-2").connect(limit=1)
    assert (await other.next("granted")).stub.id == "job-1"
    await relay.enqueue("job-2")
    await other.settle()
    assert await relay.state("job-2") == "queued"
    await stream.send(heartbeat=session_pb2.Heartbeat())
    await relay.becomes("job-2", "awaiting-payload")
    stream.call.cancel()
