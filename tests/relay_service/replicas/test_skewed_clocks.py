"""Relays whose wall clocks are wrong, and by different amounts: on every lease they agree all the same.

The server's clock decides about leases. A relay's own is compared with what a caller has signed, and with
nothing else; a stream is signed over a nonce and no time.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from relay_service.client import GeneratePayload, JobContext, OkOutcome, Site
from relay_service.core.model import Change, LeaseChanged, LeaseEnd
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from service_common.clocks import SystemClock
from tests.harness.processes import running
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import RawDaemon, RawSite
from tests.relay_service.relay_fixture import DAY_MS, READY, keys_of, ref, timestamp
from tests.relay_service.replicas.relay_processes import (
    OWNERS,
    PEOPLE,
    SEARCH,
    Device,
    close_all,
    relay_command,
    write_projection,
)
from tests.relay_service.replicas.test_embedded_relay import stub
from tests.relay_service.store.valkey_fixture import TcpServer, ValkeyRoutingStore, require_valkey

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

LEASE_MS = 2_000
# Below and above what a signed request may differ by.
SLIGHT, HUGE = (-100_000, 100_000), (-600_000, 600_000)
UNKNOWN_JOB = site_plane_pb2.GetJobRequest(job_id="no-such-job")


@dataclass
class Deployment:
    """Two relays, and a store of the test's own that hears what both do.

    Attributes:
        addresses: of the relays.
        skews: how far the clock of each is ahead, in ms.
        ends: leases that ended otherwise than by a result, each with the store's time when it was heard of.
    """

    addresses: list[str]
    skews: tuple[int, int]
    store: ValkeyRoutingStore
    ends: list[tuple[LeaseChanged, int]] = field(default_factory=list)
    _noting: set[asyncio.Task[None]] = field(default_factory=set)

    def note(self, change: Change) -> None:
        if isinstance(change, LeaseChanged) and change.end is not None:
            task = asyncio.ensure_future(self._note(change))
            self._noting.add(task)
            task.add_done_callback(self._noting.discard)

    async def _note(self, change: LeaseChanged) -> None:
        self.ends.append((change, await self.store.now()))

    async def reached(self, instant_ms: int) -> None:
        """Waits until the store's clock shows that instant."""

        async def shown() -> bool:
            return await self.store.now() >= instant_ms

        await eventually(shown, 60)


@asynccontextmanager
async def deployment(server: TcpServer, folder: Path, skews: tuple[int, int]) -> AsyncIterator[Deployment]:
    projection = write_projection(folder)
    module = [sys.executable, "-m", "tests.relay_service.replicas.skewed_relay"]
    async with AsyncExitStack() as relays:
        addresses = []
        for skew in skews:
            _, _, _, *serve = relay_command(server.url, projection, "--listen", "127.0.0.1:0")
            argv = [*module, str(skew), *serve, "--lease", f"{LEASE_MS}ms"]
            process = await relays.enter_async_context(
                running(argv, env=SEARCH, cwd=folder, ready=READY, ready_timeout=60)
            )
            assert process.ready is not None
            addresses.append(process.ready[1])
        store = ValkeyRoutingStore(server.url)
        await store.start(20)
        relays.push_async_callback(store.close)
        made = Deployment(addresses, skews, store)
        store.listen(made.note)
        yield made


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TcpServer]:
    require_valkey()
    server = TcpServer(tmp_path)
    await asyncio.to_thread(server.start)
    yield server
    server.kill()


class SlowDevice(Device):
    """A device that keeps the jobs of the prompt `slow` until it is told to finish."""

    def __init__(self, address: str, name: str, owner: str) -> None:
        self.finish = asyncio.Event()
        super().__init__(address, name, owner)

    async def _answer(self, job: JobContext) -> OkOutcome:
        assert isinstance(job.payload, GeneratePayload)
        if job.payload.prompt == "slow":
            self.accepted.append(job.job_id)
            await self.finish.wait()
            return OkOutcome("wols")
        return await super()._answer(job)


async def ask(site: Site, name: str, prompt: str, owner: str) -> None:
    job = await site.enqueue(GeneratePayload(prompt), owner=owner, job_id=name)
    assert (await job.result()).outcome == OkOutcome(prompt[::-1])


@pytest.mark.parametrize("skews", [SLIGHT, HUGE], ids=["slight", "huge"])
async def test_no_lease_is_lost_and_none_is_granted_twice(
    server: TcpServer, tmp_path: Path, skews: tuple[int, int]
) -> None:
    """Sites and devices at both; some jobs outlast their lease many times over, by renewals."""
    async with deployment(server, tmp_path, skews) as relays, AsyncExitStack() as parties:
        devices = [
            SlowDevice(relays.addresses[number % 2], name, owner)
            for number, (name, owner) in enumerate(OWNERS)
        ]
        parties.push_async_callback(close_all, devices)
        sites = [
            await parties.enter_async_context(Site(address, site_id=name, keys=keys_of(name)))
            for address, name in zip(relays.addresses, ("demo", "other"), strict=True)
        ]
        slow, quick = [], []
        for site, name in zip(sites, ("demo", "other"), strict=True):
            slow += [
                asyncio.create_task(ask(site, f"{name}-slow-{number}", "slow", PEOPLE[number % 2]))
                for number in range(4)
            ]

        def accepted() -> list[str]:
            return [job_id for device in devices for job_id in device.accepted]

        def slow_ones() -> int:
            return len([job_id for job_id in accepted() if "slow" in job_id])

        await eventually(lambda: slow_ones() == 8, 60, lambda: f"all slow jobs: {accepted()}")
        began_ms = await relays.store.now()
        for site, name in zip(sites, ("demo", "other"), strict=True):
            quick += [
                asyncio.create_task(ask(site, f"{name}-{number}", f"{name} {number}", PEOPLE[number % 2]))
                for number in range(40)
            ]
        await asyncio.gather(*quick)
        await relays.reached(began_ms + 4 * LEASE_MS)
        assert not any(task.done() for task in slow)
        for device in devices:
            device.finish.set()
        await asyncio.gather(*slow)
        assert Counter(accepted()).most_common(1)[0][1] == 1
        assert len(accepted()) == 88
        await relays.store.delivered()
        assert relays.ends == []


async def test_a_lease_that_is_not_renewed_ends_when_the_server_says_so(
    server: TcpServer, tmp_path: Path
) -> None:
    """Neither relay ends it early, though by the clock of one of them it was over before it began."""
    async with (
        deployment(server, tmp_path, HUGE) as relays,
        grpc.aio.insecure_channel(relays.addresses[0]) as first,
        grpc.aio.insecure_channel(relays.addresses[1]) as second,
    ):
        clock = SystemClock()
        site = await RawSite(first, "demo", keys_of("demo"), clock.now_ms).connect()
        silent, other = [
            await RawDaemon(channel, name, keys_of(name), clock.now_ms).connect(limit=limit)
            for channel, name, limit in ((second, "runner-1", 1), (first, "runner-2", 0))
        ]
        enqueue = site_plane_pb2.EnqueueJobRequest(stub=stub(0))
        await site.send(call=site_plane_pb2.SiteCall(id=1, enqueue_job=enqueue))
        assert (await site.next("reply")).enqueue_job.created
        granted = await silent.next("granted")
        lease = ref(granted)
        assert 0 < granted.lease.remaining.ToMilliseconds() <= LEASE_MS
        await silent.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
        await site.send(call=site_plane_pb2.SiteCall(id=2, seal_payload=sealed(lease)))
        assert (await site.next("reply")).WhichOneof("outcome") == "seal_payload"
        await silent.next("payload_ready")
        # Once more, for a lease that begins when its payload is there.
        await silent.send(renew=daemon_plane_pb2.Renew(renewal_id=1, leases=[lease]))
        answer = await eventually(lambda: next((v for v in silent.take("verdicts") if v.renewal_id), None))
        assert list(answer.verdicts) == []
        job = await relays.store.job("demo", "job-0000")
        assert job is not None
        assert job.claim is not None
        expires_at_ms = job.claim.lease_expires_at_ms
        await eventually(lambda: relays.ends, 30)
        ((change, noticed_at_ms),) = relays.ends
        assert (change.lease.lease_id, change.end) == (lease.lease_id, LeaseEnd.EXPIRED)
        assert noticed_at_ms >= expires_at_ms
        verdicts = await eventually(
            lambda: [each for answer in silent.take("verdicts") for each in answer.verdicts]
        )
        assert [each.lease for each in verdicts] == [lease]
        await other.send(credit={"limit": 1})
        again = await other.next("granted")
        assert again.stub.id == "job-0000"
        assert again.lease.id != lease.lease_id
        assert await relays.store.now() >= expires_at_ms


def sealed(lease: Any) -> site_plane_pb2.SealPayloadRequest:
    request = site_plane_pb2.SealPayloadRequest(job_id=lease.job_id, lease_id=lease.lease_id)
    request.envelope.ciphertext = b"sealed payload"
    request.envelope.recipient_key_id = keys_of("runner-1").key_id
    request.envelope.sender_key_id = keys_of("demo").key_id
    request.envelope.direction = job_pb2.DIRECTION_PAYLOAD
    request.envelope.deadline_time.CopyFrom(timestamp(SystemClock().now_ms() + DAY_MS))
    return request


async def test_signatures_alone_go_by_the_relay_s_clock(server: TcpServer, tmp_path: Path) -> None:
    """Beyond 120 s a caller with the right time is told the relay's, signs by that and is let in."""
    async with deployment(server, tmp_path, HUGE) as relays:
        for address, skew in zip(relays.addresses, relays.skews, strict=True):
            async with grpc.aio.insecure_channel(address) as channel:
                right = RawSite(channel, "demo", keys_of("demo"), SystemClock().now_ms)
                refusal = await right.refused("GetJob", UNKNOWN_JOB)
                assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, "CLOCK_SKEW")
                announced_ms = int(dict(refusal.metadata)["server_time_ms"])
                ahead_ms = announced_ms - SystemClock().now_ms()
                assert abs(ahead_ms - skew) < 60_000
                told = RawSite(channel, "demo", keys_of("demo"), lambda: announced_ms)  # noqa: B023
                assert (await told.refused("GetJob", UNKNOWN_JOB)).reason == "JOB_NOT_FOUND"


async def test_within_120_seconds_a_caller_with_the_right_time_is_let_in(
    server: TcpServer, tmp_path: Path
) -> None:
    async with deployment(server, tmp_path, SLIGHT) as relays:
        for address in relays.addresses:
            async with grpc.aio.insecure_channel(address) as channel:
                right = RawSite(channel, "demo", keys_of("demo"), SystemClock().now_ms)
                assert (await right.refused("GetJob", UNKNOWN_JOB)).reason == "JOB_NOT_FOUND"
