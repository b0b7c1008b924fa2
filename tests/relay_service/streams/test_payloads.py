"""How a payload reaches its device, and a result its site, on their streams."""

from typing import Any

import grpc
import pytest

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.sessions.limits import SessionTimes
from tests.relay_service.raw_client import Refusal
from tests.relay_service.relay_fixture import RelayUnderTest, Serve, keys_of, ref

INLINE_PAYLOAD = [session_pb2.CAPABILITY_INLINE_PAYLOAD]
INLINE_RESULT = [session_pb2.CAPABILITY_INLINE_RESULT]
LIMIT = 32_768
DaemonCall = daemon_plane_pb2.DaemonCall
SiteCall = site_plane_pb2.SiteCall


async def test_a_small_payload_travels_with_the_news_of_it(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=1, capabilities=INLINE_PAYLOAD)
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    await relay.seal(lease, body=bytes(LIMIT))
    ready = await stream.next("payload_ready")
    assert (ready.lease, ready.size_bytes) == (lease, LIMIT)
    assert ready.envelope == relay.payload(body=bytes(LIMIT))
    # Having been sent it counts as having fetched it.
    assert await relay.state("job-1") == "running"


@pytest.mark.parametrize(("capabilities", "size"), [(INLINE_PAYLOAD, LIMIT + 1), ([], 14)])
async def test_otherwise_it_is_fetched(
    relay: RelayUnderTest, capabilities: list[session_pb2.Capability.ValueType], size: int
) -> None:
    stream = await relay.daemon().connect(limit=1, capabilities=capabilities)
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    await relay.seal(lease, body=bytes(size))
    ready = await stream.next("payload_ready")
    assert (ready.lease, ready.size_bytes, ready.HasField("envelope")) == (lease, size, False)
    assert await relay.state("job-1") == "ready"
    fetch = daemon_plane_pb2.FetchPayloadRequest(lease=lease)
    fetched = await relay.daemon().call("FetchPayload", fetch)
    assert fetched.envelope == relay.payload(body=bytes(size))
    assert await relay.state("job-1") == "running"


async def test_the_payload_comes_after_its_grant(relay: RelayUnderTest) -> None:
    site, stream = await relay.site().connect(), await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    lease_id = (await site.next("notice")).please_seal.lease_id
    await relay.seal(job_pb2.LeaseRef(job_id="job-1", lease_id=lease_id))
    await stream.next("payload_ready")
    arms = [item.WhichOneof("item") for frame in stream.frames for item in frame.items]
    assert arms.index("granted") < arms.index("payload_ready")


async def test_a_payload_for_a_device_that_was_cancelled_is_not_sent(relay: RelayUnderTest) -> None:
    stream = await relay.daemon().connect(limit=1, capabilities=INLINE_PAYLOAD)
    await stream.next("verdicts")
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    await relay.cancel("job-1")
    seal = site_plane_pb2.SealPayloadRequest(
        job_id="job-1", lease_id=lease.lease_id, envelope=relay.payload()
    )
    refusal = await relay.site().refused("SealPayload", seal)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "JOB_CANCELLED")
    await stream.next("verdicts")
    await stream.settle()
    assert not stream.take("payload_ready")


# -- bodies on the stream -----------------------------------------------------------------


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
async def test_a_result_of_at_most_32_kib_rides_the_stream(relay: RelayUnderTest, size: int) -> None:
    stream = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    done = daemon_plane_pb2.CompleteJobRequest(
        lease=ref(await stream.next("granted")),
        envelope=relay.result(body=bytes(size)),
        disposition=job_pb2.DISPOSITION_OK,
    )
    await stream.send(call=DaemonCall(id=3, complete_job=done))
    reply = await stream.next("reply")
    assert reply.id == 3
    if size == LIMIT:
        assert reply.complete_job.accepted
        return
    _assert_too_large(reply.error)
    assert await relay.state("job-1") == "awaiting-payload"
    assert (await relay.daemon().call("CompleteJob", done)).accepted


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
async def test_a_payload_of_at_most_32_kib_rides_the_stream(relay: RelayUnderTest, size: int) -> None:
    site, stream = await relay.site().connect(), await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    seal = site_plane_pb2.SealPayloadRequest(
        job_id="job-1",
        lease_id=(await site.next("notice")).please_seal.lease_id,
        envelope=relay.payload(body=bytes(size)),
    )
    await site.send(call=SiteCall(id=3, seal_payload=seal))
    reply = await site.next("reply")
    if size == LIMIT:
        assert reply.seal_payload.state == job_pb2.JOB_STATE_READY
    else:
        _assert_too_large(reply.error)
        await relay.site().call("SealPayload", seal)
    lease = job_pb2.LeaseRef(job_id="job-1", lease_id=seal.lease_id)
    fetch = daemon_plane_pb2.FetchPayloadRequest(lease=lease)
    await stream.send(call=DaemonCall(id=4, fetch_payload=fetch))
    reply = await stream.next("reply")
    if size == LIMIT:
        assert reply.fetch_payload.envelope == seal.envelope
    else:
        _assert_too_large(reply.error)


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
async def test_a_result_of_at_most_32_kib_travels_with_its_notice(relay: RelayUnderTest, size: int) -> None:
    site = await relay.site().connect(capabilities=INLINE_RESULT)
    stream = await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    await site.next("notice")
    lease = ref(await stream.next("granted"))
    done = daemon_plane_pb2.CompleteJobRequest(
        lease=lease, envelope=relay.result(body=bytes(size)), disposition=job_pb2.DISPOSITION_ERROR
    )
    await relay.daemon().call("CompleteJob", done)
    ready = (await site.next("notice")).result_ready
    assert ready.disposition == job_pb2.DISPOSITION_ERROR
    assert (ready.size_bytes, ready.lease_id) == (size, lease.lease_id)
    assert (ready.runner_id, ready.runner_owner) == ("runner-1", "alice")
    assert ready.device.identity == keys_of("runner-1").public.identity
    get = site_plane_pb2.GetResultRequest(job_id="job-1")
    await site.send(call=SiteCall(id=5, get_result=get))
    reply = await site.next("reply")
    if size == LIMIT:
        assert ready.envelope == reply.get_result.envelope == done.envelope
    else:
        assert not ready.HasField("envelope")
        _assert_too_large(reply.error)
        assert (await relay.site().call("GetResult", get)).envelope == done.envelope


async def test_a_result_is_not_inlined_for_a_site_that_does_not_know_how(relay: RelayUnderTest) -> None:
    site, stream = await relay.site().connect(), await relay.daemon().connect(limit=1)
    await relay.enqueue("job-1")
    await site.next("notice")
    done = daemon_plane_pb2.CompleteJobRequest(
        lease=ref(await stream.next("granted")),
        envelope=relay.result(),
        disposition=job_pb2.DISPOSITION_OK,
    )
    await relay.daemon().call("CompleteJob", done)
    assert not (await site.next("notice")).result_ready.HasField("envelope")


# -- many calls at once -------------------------------------------------------------------


async def test_a_frame_full_of_calls_is_answered_in_full(relay: RelayUnderTest) -> None:
    """More of them than the control lane holds answers: a client that reads is not a slow one."""
    site = await relay.site().connect()
    calls = [
        site.item(call=SiteCall(id=number, get_job=site_plane_pb2.GetJobRequest(job_id="x")))
        for number in range(1, 4_001)
    ]
    await site.send_items(*calls)
    replies = [(await site.next("reply")).id for _ in calls]
    assert replies == list(range(1, 4_001))
    await site.settle()


async def test_a_hundred_stubs_with_much_to_say_against_each(serve: Serve) -> None:
    """An answer that would not fit a frame does so by unary call."""
    async with serve(SessionTimes(frame_bytes=40_000)) as relay:
        site = await relay.site().connect()
        stubs = [job_pb2.JobStub(id=f"{number}\x01") for number in range(100)]
        request = site_plane_pb2.EnqueueJobsRequest(stubs=stubs)
        await site.send(call=SiteCall(id=1, enqueue_jobs=request))
        _assert_too_large((await site.next("reply")).error)
        answer = await relay.site().call("EnqueueJobs", request)
        assert answer.ByteSize() > 40_000
        assert len(answer.results) == 100
        assert max(frame.ByteSize() for frame in site.frames) <= 40_000


@pytest.mark.parametrize("plane", ["daemon", "site"])
async def test_a_call_of_a_newer_peer_is_answered_as_unknown(relay: RelayUnderTest, plane: str) -> None:
    if plane == "daemon":
        stream = await relay.daemon().connect()
        await stream.send(call=DaemonCall(id=9))
    else:
        stream = await relay.site().connect()
        await stream.send(call=SiteCall(id=9))
    reply = await stream.next("reply")
    refusal = Refusal.of_status(reply.error)
    assert (reply.id, refusal.code, refusal.reason) == (
        9,
        grpc.StatusCode.UNIMPLEMENTED,
        "NOT_IMPLEMENTED",
    )


def _assert_too_large(status: Any) -> None:
    refusal = Refusal.of_status(status)
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "BODY_TOO_LARGE_FOR_SESSION",
    )
