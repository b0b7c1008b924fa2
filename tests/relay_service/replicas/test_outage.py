"""The Valkey server is away for a while: calls say so, streams stay, and afterwards everything is there."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc

from relay_service.core.model import JobStub, LeaseRef
from relay_service.core.projection import Projection
from relay_service.planes import convert
from relay_service.process import Gap
from relay_service.projection import ProjectionSource
from relay_service.projection_exchange import ProjectionExchange
from relay_service.store.base import Enqueued, StoreUnavailable
from relay_service.store.valkey import ValkeyRoutingStore
from relay_service.store.valkey_connection import CommandConnection
from relay_service.store_guard import guarded
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from service_common.background import Background
from tests.harness.fault_proxy import FaultProxy, fault_proxy
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import RawStream, Refusal, row
from tests.relay_service.relay_fixture import PROJECTION, ref, without_device
from tests.relay_service.replicas.two_relays import TwoRelays, two_relays
from tests.relay_service.store.valkey_fixture import TcpServer, empty, require_valkey

GET_JOB = site_plane_pb2.GetJobRequest(job_id="job-1")
SITE_PLANE = "sealwork.relay.v1.SitePlaneService"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TcpServer]:
    """A server of the test's own, which it may kill."""
    require_valkey()
    server = TcpServer(tmp_path)
    await asyncio.to_thread(server.start)
    yield server
    server.kill()


@pytest.fixture
async def relay(server: TcpServer) -> AsyncIterator[TwoRelays]:
    async with two_relays(server.url) as running:
        yield running


async def lose(relay: TwoRelays, server: TcpServer) -> None:
    """Kills the server, and returns when both relays have noticed."""
    server.kill()
    for store in relay.stores:
        await eventually(lambda store=store: is_away(store))  # type: ignore[misc]


async def bring_back(relay: TwoRelays, server: TcpServer) -> None:
    """Starts the server on its file, and returns when both relays speak with it and listen to it."""
    await asyncio.to_thread(server.start)
    await reached(relay)


async def reached(relay: TwoRelays) -> None:
    for store in relay.stores:
        await eventually(lambda store=store: is_back(store), 20)  # type: ignore[misc]
    # The next turn of the relays' own timers.
    await relay.clock.advance_async(250)


async def is_away(store: ValkeyRoutingStore) -> bool:
    try:
        await store.now()
    except StoreUnavailable:
        return True
    return False


async def is_back(store: ValkeyRoutingStore) -> bool:
    try:
        await store.delivered()
    except StoreUnavailable:
        return False
    return True


def assert_store_unavailable(refusal: Refusal) -> None:
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    assert refusal.retry_after_ms == 1_000


async def asked(stream: RawStream, number: int) -> Any:
    """The reply to a site's call on its stream."""
    await stream.send(call=site_plane_pb2.SiteCall(id=number, get_job=GET_JOB))
    reply = await stream.next("reply")
    assert reply.id == number
    return reply


async def renewed(stream: RawStream, number: int, lease: job_pb2.LeaseRef) -> None:
    await stream.send(renew=daemon_plane_pb2.Renew(renewal_id=number, leases=[lease]))


async def sealed_job(relay: TwoRelays, stream: RawStream, job_id: str) -> job_pb2.LeaseRef:
    """Has a device take a job whose payload is there."""
    await relay.enqueue(job_id)
    lease = ref(await stream.next("granted"))
    assert lease.job_id == job_id
    await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
    await relay.seal(lease)
    await stream.next("payload_ready")
    return lease


# -- while it is away -------------------------------------------------------------------


async def test_calls_say_that_the_store_is_away(relay: TwoRelays, server: TcpServer) -> None:
    await lose(relay, server)
    assert_store_unavailable(await relay.site().refused("GetJob", GET_JOB))
    request = site_plane_pb2.EnqueueJobRequest(stub=relay.stub("job-1"))
    assert_store_unavailable(await relay.site().refused("EnqueueJob", request))
    claim = daemon_plane_pb2.ClaimJobsRequest(request_id="1", matrix=[row()], max_jobs=1)
    assert_store_unavailable(await relay.daemon().refused("ClaimJobs", claim))


async def test_streams_outlive_any_number_of_its_errors(relay: TwoRelays, server: TcpServer) -> None:
    site, device = await relay.site().connect(), await relay.daemon().connect(limit=5)
    lease = await sealed_job(relay, device, "job-1")
    await lose(relay, server)
    for number in range(1, 41):
        reply = await asked(site, number)
        assert_store_unavailable(Refusal.of_status(reply.error))
        await renewed(device, number, lease)
        error = await device.next("frame_error")
        assert_store_unavailable(Refusal.of_status(error.status))
    assert not [verdict for answer in device.take("verdicts") for verdict in answer.verdicts]
    await bring_back(relay, server)
    assert (await asked(site, 41)).get_job.state == job_pb2.JOB_STATE_READY
    await renewed(device, 41, lease)
    # What a renewal does not name is held.
    answer = await eventually(lambda: next((v for v in device.take("verdicts") if v.renewal_id), None))
    assert (answer.renewal_id, list(answer.verdicts)) == (41, [])
    assert not site.closed
    assert not device.closed


async def test_the_client_s_own_faults_still_end_its_stream(relay: TwoRelays, server: TcpServer) -> None:
    device = await relay.daemon().connect(limit=1)
    await device.settle()
    await lose(relay, server)
    nameless = device.item(grant_ack=daemon_plane_pb2.GrantAck(leases=[job_pb2.LeaseRef()]))
    await device.send_items(*[nameless] * 20)
    refusal = await device.end()
    assert refusal is not None
    assert refusal.reason == "PROTOCOL_VIOLATION"


async def test_a_new_stream_of_a_device_is_told_to_come_again(relay: TwoRelays, server: TcpServer) -> None:
    await lose(relay, server)
    stream = relay.daemon().open()
    await relay.daemon().greet(stream)
    refusal = await stream.end()
    assert refusal is not None
    assert_store_unavailable(refusal)


async def test_health_says_so_and_says_when_it_is_over(relay: TwoRelays, server: TcpServer) -> None:
    health: Any = health_pb2_grpc.HealthStub(relay.channel)
    serving, not_serving = (
        health_pb2.HealthCheckResponse.SERVING,
        health_pb2.HealthCheckResponse.NOT_SERVING,
    )

    async def told(status: Any) -> None:
        async def has_it() -> bool:
            request = health_pb2.HealthCheckRequest(service=SITE_PLANE)
            return bool((await health.Check(request)).status == status)

        await relay.clock.advance_async(5_000)
        await eventually(has_it)

    await told(serving)
    await lose(relay, server)
    await told(not_serving)
    alive = await health.Check(health_pb2.HealthCheckRequest(service="liveness"))
    assert alive.status == serving
    await bring_back(relay, server)
    await told(serving)


async def test_a_pause_of_the_server_is_a_late_answer(relay: TwoRelays, server: TcpServer) -> None:
    site = await relay.site().connect()
    await relay.enqueue("job-1")
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        await site.send(call=site_plane_pb2.SiteCall(id=1, get_job=GET_JOB))
        await relay.clock.advance_async(15_000)
        # The relay's own beat: the stream is not held up by what waits for the store.
        await site.next("heartbeat")
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert (await site.next("reply")).get_job.state == job_pb2.JOB_STATE_QUEUED


async def test_a_server_that_stays_silent_is_away(server: TcpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    impatient = partial(CommandConnection, answer_seconds=1.0)
    monkeypatch.setattr("relay_service.store.valkey_sites.CommandConnection", impatient)
    async with two_relays(server.url) as relay:
        site = await relay.site().connect()
        await relay.enqueue("job-1")
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        try:
            assert_store_unavailable(Refusal.of_status((await asked(site, 1)).error))
        finally:
            server.process.send_signal(signal.SIGCONT)
        await reached(relay)
        assert (await asked(site, 2)).get_job.state == job_pb2.JOB_STATE_QUEUED


# -- afterwards -------------------------------------------------------------------------


async def test_everything_is_there_afterwards(relay: TwoRelays, server: TcpServer) -> None:
    device = await relay.daemon().connect(limit=2)
    held, done = await sealed_job(relay, device, "held"), await sealed_job(relay, device, "done")
    finish = daemon_plane_pb2.CompleteJobRequest(
        lease=done, envelope=relay.result(), disposition=job_pb2.DISPOSITION_OK
    )
    await relay.daemon().call("CompleteJob", finish)
    await relay.enqueue("queued", "ended")
    await relay.cancel("ended")
    await lose(relay, server)
    await bring_back(relay, server)

    assert await relay.state("queued") == "queued"
    assert await relay.state("held") == "ready"
    named = daemon_plane_pb2.RenewLeasesRequest(leases=[held])
    answer = await relay.daemon().call("RenewLeases", named)
    assert [verdict.state for verdict in answer.verdicts] == [job_pb2.LEASE_STATE_ACTIVE]
    inbox = await relay.site().call("ListNotices", site_plane_pb2.ListNoticesRequest())
    rows = {notice.job_id: notice.WhichOneof("notice") for notice in inbox.notices}
    assert rows == {"done": "result_ready", "ended": "job_ended"}
    result = await relay.site().call("GetResult", site_plane_pb2.GetResultRequest(job_id="done"))
    assert result.envelope.ciphertext == b"sealed result"


async def test_a_device_that_waits_gets_work_that_nobody_could_tell_of(
    relay: TwoRelays, server: TcpServer
) -> None:
    device = await relay.daemon().connect(limit=1)
    await device.settle()
    await lose(relay, server)
    await bring_back(relay, server)
    await relay.enqueue("job-1")
    assert (await device.next("granted")).stub.id == "job-1"


@asynccontextmanager
async def apart(server: TcpServer) -> AsyncIterator[tuple[TwoRelays, list[FaultProxy], ValkeyRoutingStore]]:
    """Two relays, the ways to the server of each, and a third store that is never cut off."""
    empty(server.url)
    async with (
        fault_proxy("127.0.0.1", server.port) as first,
        fault_proxy("127.0.0.1", server.port) as second,
    ):
        urls = f"valkey://{first.address} valkey://{second.address}"
        async with two_relays(urls) as relay:
            clock = relay.clock
            third = ValkeyRoutingStore(server.url, clock_setting=lambda: str(clock.now_ms()))
            await third.start()
            try:
                yield relay, [first, second], third
            finally:
                await third.close()


async def cut(relay: TwoRelays, ways: list[FaultProxy]) -> None:
    for way in ways:
        way.cut(refuse=True)
        await way.reset_all()
    for store in relay.stores:
        await eventually(lambda store=store: is_away(store))  # type: ignore[misc]


async def mend(relay: TwoRelays, ways: list[FaultProxy]) -> None:
    for way in ways:
        await way.restore()
    await reached(relay)


def stub(relay: TwoRelays, job_id: str) -> JobStub:
    return convert.stub_from_proto(relay.stub(job_id))


async def test_pushes_are_made_up_without_any_further_event(server: TcpServer) -> None:
    """What other relays did meanwhile: a new job, a payload, a cancel and an end."""
    async with apart(server) as (relay, ways, third):
        site, device = await relay.site().connect(), await relay.daemon().connect(limit=3)
        leases = []
        for job_id in ("sealed", "cancelled"):
            await relay.enqueue(job_id)
            leases.append(ref(await device.next("granted")))
            await site.next("notice")
        await device.send(grant_ack=daemon_plane_pb2.GrantAck(leases=leases))
        await device.settle()
        await cut(relay, ways)

        to_seal = LeaseRef("sealed", leases[0].lease_id)
        envelope = convert.envelope_from_proto(relay.payload())
        await third.seal("demo", to_seal, envelope.recipient_key_id, envelope)
        assert await third.cancel("demo", "cancelled")
        assert isinstance(await third.enqueue("demo", stub(relay, "new")), Enqueued)
        assert isinstance(await third.enqueue("demo", stub(relay, "ended")), Enqueued)
        assert await third.cancel("demo", "ended")
        await mend(relay, ways)

        assert (await device.next("granted")).stub.id == "new"
        assert (await device.next("payload_ready")).lease.job_id == "sealed"
        cancels = await eventually(
            lambda: [each for answer in device.take("verdicts") for each in answer.verdicts]
        )
        assert [(each.lease.job_id, each.state) for each in cancels] == [
            ("cancelled", job_pb2.LEASE_STATE_CANCEL_REQUESTED)
        ]
        told = {(await site.next("notice")).job_id for _ in range(2)}
        assert told == {"new", "ended"}


async def test_a_call_that_waits_is_looked_at_as_soon_as_the_store_is_back(server: TcpServer) -> None:
    """A unary claim that began before the outage, and a job that another relay took in during it."""
    async with apart(server) as (relay, ways, third):
        ten_seconds = Duration(seconds=10)
        claim = daemon_plane_pb2.ClaimJobsRequest(
            request_id="1", matrix=[row()], max_jobs=1, wait=ten_seconds
        )
        waiting = asyncio.create_task(relay.daemon().call("ClaimJobs", claim, timeout=60))
        room = relay.device_server.relay.dispatch._waiting
        await eventually(room.everyone)
        await cut(relay, ways)
        assert isinstance(await third.enqueue("demo", stub(relay, "new")), Enqueued)
        assert not waiting.done()
        await mend(relay, ways)
        # Of the ten seconds that it may wait, none has passed but the turns of the relays' timers.
        assert [granted.stub.id for granted in (await waiting).granted] == ["new"]


async def test_a_projection_that_changed_meanwhile_is_shared_afterwards(server: TcpServer) -> None:
    empty(server.url)
    async with fault_proxy("127.0.0.1", server.port) as way, AsyncExitStack() as ends:

        async def follow(
            url: str, projection: Projection | None
        ) -> tuple[ProjectionSource, ValkeyRoutingStore]:
            gap, source = Gap(), ProjectionSource(projection)
            store = ValkeyRoutingStore(url, on_gap=gap.note)
            await store.start()
            ends.push_async_callback(store.close)
            exchange = ProjectionExchange(guarded(store), source, Background())
            gap.tell = [exchange.missed]
            await exchange.begin(has_file=projection is not None)
            return source, store

        edited, store = await follow(f"valkey://{way.address}", replace(PROJECTION, revision=1))
        other, _ = await follow(server.url, None)
        assert other.current.device("runner-1") is not None
        way.cut(refuse=True)
        await way.reset_all()
        await eventually(lambda: is_away(store))
        edited.replace(without_device("runner-1"))
        await way.restore()
        await eventually(lambda: other.current.device("runner-1") is None)
        assert other.current.revision == edited.current.revision
