"""A bad network between a device or a site and the relay; and the relay itself gone and back."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from tests.harness.fault_proxy import FaultProxy, fault_proxy
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import RawStream
from tests.relay_service.relay_fixture import RelayUnderTest, ref, serving

PLANES = pytest.mark.parametrize("plane", ["daemon", "site"])
LOST, ACTIVE = job_pb2.LEASE_STATE_LOST, job_pb2.LEASE_STATE_ACTIVE


@contextlib.asynccontextmanager
async def behind(
    relay: RelayUnderTest, plane: str = "daemon"
) -> AsyncIterator[tuple[FaultProxy, Callable[[], Awaitable[Any]]]]:
    """A bad network before the relay of a plane, and what opens a connection of its own through it."""
    async with (
        fault_proxy("127.0.0.1", relay.server_of(plane).ports[0]) as proxy,
        contextlib.AsyncExitStack() as channels,
    ):

        async def dial() -> Any:
            channel = grpc.aio.insecure_channel(proxy.address, [("grpc.use_local_subchannel_pool", 1)])
            return await channels.enter_async_context(channel)

        yield proxy, dial


async def holding(relay: RelayUnderTest, channel: Any) -> tuple[RawStream, Any]:
    """A device behind the bad network that works on job-1."""
    stream = await relay.daemon(channel=channel).connect(limit=1)
    await relay.enqueue("job-1")
    lease = ref(await stream.next("granted"))
    await relay.seal(lease)
    await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
    await relay.daemon().call("FetchPayload", daemon_plane_pb2.FetchPayloadRequest(lease=lease))
    await stream.settle()
    assert await relay.state("job-1") == "running"
    return stream, lease


async def test_a_short_cut_costs_neither_stream_nor_lease(relay: RelayUnderTest) -> None:
    """Nothing was lost on the way: what was held back arrives when the network is back."""
    async with behind(relay) as (proxy, dial):
        stream, lease = await holding(relay, await dial())
        proxy.pause()
        await relay.elapse(30_000)
        proxy.resume()
        await stream.settle()
        await stream.send(renew=daemon_plane_pb2.Renew(renewal_id=1, leases=[lease]))
        while (await stream.next("verdicts")).renewal_id != 1:
            pass
        await relay.pass_time(50_000, alive=[stream])
        assert await relay.state("job-1") == "running"
        assert relay.ends("daemon") == {}


async def test_a_cut_longer_than_the_liveness_time_costs_the_stream_alone(relay: RelayUnderTest) -> None:
    async with behind(relay) as (proxy, dial):
        _, lease = await holding(relay, await dial())
        proxy.cut()
        await relay.elapse(45_000)
        await relay.ended("daemon", "silent")
        assert await relay.state("job-1") == "running"
        await proxy.restore()
        stream = await relay.daemon(channel=await dial()).connect(limit=0, inventory={"leases": [lease]})
        (verdict,) = (await stream.next("verdicts")).verdicts
        assert (verdict.lease, verdict.state) == (lease, ACTIVE)
        done = daemon_plane_pb2.CompleteJobRequest(
            lease=lease, envelope=relay.result(), disposition=job_pb2.DISPOSITION_OK
        )
        await stream.send(call=daemon_plane_pb2.DaemonCall(id=1, complete_job=done))
        assert (await stream.next("reply")).complete_job.accepted


async def test_a_cut_longer_than_the_lease_costs_the_lease(relay: RelayUnderTest) -> None:
    """The job is finished by another, and what the first one says later counts for nothing."""
    async with behind(relay) as (proxy, dial):
        _, lease = await holding(relay, await dial())
        proxy.cut()
        other = await relay.daemon("runner-2").connect(limit=1)
        await relay.pass_time(60_000, alive=[other])
        await relay.ended("daemon", "silent")
        second = ref(await relay.told(other, "granted"))
        assert second.job_id == "job-1"
        done = daemon_plane_pb2.CompleteJobRequest(
            lease=second, envelope=relay.result("runner-2"), disposition=job_pb2.DISPOSITION_OK
        )
        await relay.daemon("runner-2").call("CompleteJob", done)

        await proxy.restore()
        stream = await relay.daemon(channel=await dial()).connect(limit=0, inventory={"leases": [lease]})
        (verdict,) = (await stream.next("verdicts")).verdicts
        assert (verdict.state, verdict.end_reason) == (LOST, job_pb2.LEASE_END_REASON_EXPIRED)
        late = daemon_plane_pb2.CompleteJobRequest(
            lease=lease, envelope=relay.result(), disposition=job_pb2.DISPOSITION_OK
        )
        refusal = await relay.daemon().refused("CompleteJob", late)
        assert refusal.reason == "JOB_NOT_FOUND"
        result = await relay.site().call("GetResult", site_plane_pb2.GetResultRequest(job_id="job-1"))
        assert result.runner_id == "runner-2"


async def test_a_cancel_during_a_cut_is_told_afterwards(relay: RelayUnderTest) -> None:
    async with behind(relay) as (proxy, dial):
        _, lease = await holding(relay, await dial())
        proxy.cut()
        await relay.cancel("job-1")
        await relay.elapse(45_000)
        await relay.ended("daemon", "silent")
        await proxy.restore()
        stream = await relay.daemon(channel=await dial()).connect(limit=0, inventory={"leases": [lease]})
        (verdict,) = (await stream.next("verdicts")).verdicts
        assert verdict.state == job_pb2.LEASE_STATE_CANCEL_REQUESTED


async def test_a_grant_that_is_lost_on_the_way_comes_back(relay: RelayUnderTest) -> None:
    async with behind(relay) as (proxy, dial):
        stream = await relay.daemon(channel=await dial()).connect(limit=1)
        await stream.settle()
        proxy.cut()
        await relay.enqueue("job-1")
        await relay.becomes("job-1", "awaiting-payload")
        await relay.seal(await relay.lease_of("job-1"))
        await relay.elapse(10_000)
        await relay.becomes("job-1", "queued")
        other = await relay.daemon("runner-2").connect(limit=1)
        assert (await other.next("granted")).stub.id == "job-1"


@PLANES
async def test_a_half_open_connection_that_hears_nothing(relay: RelayUnderTest, plane: str) -> None:
    """The client's frames are lost: the relay ends the stream, and says why."""
    async with behind(relay, plane) as (proxy, dial):
        channel = await dial()
        party = relay.daemon(channel=channel) if plane == "daemon" else relay.site(channel=channel)
        stream = await party.connect()
        await stream.settle()
        proxy.half_open("up")
        await relay.elapse(45_000)
        refusal = await stream.end()
        assert refusal is not None
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SESSION_SILENT")
        await relay.ended(plane, "silent")


@PLANES
async def test_a_half_open_connection_that_says_nothing(relay: RelayUnderTest, plane: str) -> None:
    """The relay's frames are lost: it hears the client and stays, until the connection is gone."""
    async with behind(relay, plane) as (proxy, dial):
        channel = await dial()
        party = relay.daemon(channel=channel) if plane == "daemon" else relay.site(channel=channel)
        stream = await party.connect()
        await stream.settle()
        proxy.half_open("down")
        received = proxy.up.delivered_bytes
        await stream.send_items()
        await eventually(lambda: proxy.up.delivered_bytes > received)
        await relay.elapse(44_000)
        assert relay.ends(plane) == {}
        await proxy.restore()
        await relay.ended(plane, "lost")


async def test_notices_that_were_lost_on_the_way_are_sent_to_the_next_stream(relay: RelayUnderTest) -> None:
    async with behind(relay, "site") as (proxy, dial):
        stream = await relay.site(channel=await dial()).connect()
        await stream.settle()
        proxy.cut()
        await relay.enqueue("job-1")
        await relay.cancel("job-1")
        await relay.elapse(45_000)
        await relay.ended("site", "silent")
        await proxy.restore()
        stream = await relay.site(channel=await dial()).connect()
        assert (await stream.next("notice")).job_id == "job-1"


async def test_a_relay_that_comes_back_has_forgotten_everything_and_says_so() -> None:
    """Sites publish again, devices learn that they hold nothing, and the work gets done."""
    async with serving() as relay:
        address = relay.server.address
        site = await relay.site().connect()
        stream, lease = await holding(relay, relay.channel)
        await relay.server.stop()
        for lost in (site, stream):
            assert await lost.code() is grpc.StatusCode.UNAVAILABLE

    async with serving(address=address) as relay:
        assert relay.server.address == address
        stream = await relay.daemon().connect(limit=1, inventory={"leases": [lease]})
        (verdict,) = (await stream.next("verdicts")).verdicts
        assert (verdict.lease, verdict.state) == (lease, LOST)
        refusal = await relay.daemon().refused(
            "FetchPayload", daemon_plane_pb2.FetchPayloadRequest(lease=lease)
        )
        assert refusal.reason == "JOB_NOT_FOUND"
        site = await relay.site().connect()
        publish = site_plane_pb2.EnqueueJobRequest(stub=relay.stub("job-1"))
        assert (await relay.site().call("EnqueueJob", publish)).created
        notice = await site.next("notice")
        assert notice.please_seal.runner_id == "runner-1"
        assert ref(await stream.next("granted")).job_id == "job-1"
