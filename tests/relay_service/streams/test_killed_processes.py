"""Killed in the middle of the work: a device, and the relay. Real processes over real sockets."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_plane_pb2
from tests.harness.processes import RunningProcess, running
from tests.relay_service.planes.scene import enqueue
from tests.relay_service.raw_client import RawDaemon, RawSite
from tests.relay_service.relay_fixture import (
    DAY_MS,
    REPOSITORY,
    RelayUnderTest,
    keys_of,
    ref,
    relay_process,
    timestamp,
)

pytestmark = pytest.mark.process

CHILD = Path(__file__).with_name("daemon_child.py")


@asynccontextmanager
async def device(relay: RelayUnderTest) -> AsyncIterator[RunningProcess]:
    search = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'protos/gen/python'}"}
    argv = [sys.executable, str(CHILD), relay.server_of("daemon").address, "runner-1"]
    async with running(argv, env=search, cwd=REPOSITORY, ready="^ready$") as process:
        yield process


async def working(relay: RelayUnderTest, process: RunningProcess) -> job_pb2.LeaseRef:
    """Has the device take job-1."""
    await relay.enqueue("job-1")
    await relay.becomes("job-1", "awaiting-payload")
    await relay.seal(await relay.lease_of("job-1"))
    held = await process.wait_line(r"^holding (\S+) (\S+)$")
    return job_pb2.LeaseRef(job_id=held[1], lease_id=held[2])


async def test_the_job_of_a_killed_device_is_finished_by_another(relay: RelayUnderTest) -> None:
    async with device(relay) as process:
        lease = await working(relay, process)
        process.kill()
        await process.wait()
    await relay.ended("daemon", "lost")
    assert relay.ends("daemon") == {"lost": 1}

    other = await relay.daemon("runner-2").connect(limit=1)
    await relay.pass_time(59_999, alive=[other])
    assert await relay.state("job-1") == "running"
    assert not other.take("granted")
    await relay.clock.advance_async(1)
    taken = ref(await relay.told(other, "granted"))
    assert taken.job_id == lease.job_id
    assert taken.lease_id != lease.lease_id
    await relay.seal(taken, "runner-2")
    await other.next("payload_ready")
    done = daemon_plane_pb2.CompleteJobRequest(
        lease=taken, envelope=relay.result("runner-2"), disposition=job_pb2.DISPOSITION_OK
    )
    await other.send(call=daemon_plane_pb2.DaemonCall(id=1, complete_job=done))
    assert (await other.next("reply")).complete_job.accepted


async def test_a_frozen_device_is_silent_and_thaws_into_a_world_without_its_lease(
    relay: RelayUnderTest,
) -> None:
    """Its socket stays open all the while, and proves nothing."""
    async with device(relay) as process:
        await working(relay, process)
        process.stop()
        other = await relay.daemon("runner-2").connect(limit=1)
        await relay.pass_time(45_000, alive=[other])
        await relay.ended("daemon", "silent")
        await relay.pass_time(15_000, alive=[other])
        assert (await relay.told(other, "granted")).stub.id == "job-1"
        process.cont()
        # The child's stream was ended, so it cannot go on as if nothing had happened.
        assert await asyncio.wait_for(process.wait(), 30) != 0


async def test_a_restarted_device_that_remembers_nothing_gives_its_work_back_at_once(
    relay: RelayUnderTest,
) -> None:
    async with device(relay) as process:
        await working(relay, process)
        process.kill()
        await process.wait()
    stream = await relay.daemon().connect(limit=1, process_id="another")
    assert (await stream.next("granted")).stub.id == "job-1"
    assert relay.clock.monotonic() == 0


async def test_a_killed_relay_comes_back_and_the_work_gets_done(tmp_path: Path) -> None:
    """It has forgotten everything; whoever held something is told so, and the site publishes again."""
    async with relay_process(tmp_path) as (process, address), dial(address) as channel:
        site, device = parties(channel)
        stream, inbox = await device.connect(limit=1), await site.connect()
        await site.call("EnqueueJob", publish())
        lease = ref(await stream.next("granted"))
        await stream.send(grant_ack=daemon_plane_pb2.GrantAck(leases=[lease]))
        await stream.settle()
        before = await inbox.next("notice")
        process.kill()
        await process.wait()
        for lost in (stream, inbox):
            assert await lost.code() is grpc.StatusCode.UNAVAILABLE

    async with relay_process(tmp_path, "--listen", address) as (_, again), dial(again) as channel:
        assert again == address
        site, device = parties(channel)
        stream = await device.connect(limit=1, inventory={"leases": [lease]})
        (verdict,) = (await stream.next("verdicts")).verdicts
        assert (verdict.lease, verdict.state) == (lease, job_pb2.LEASE_STATE_LOST)
        inbox = await site.connect()
        assert (await site.call("EnqueueJob", publish())).created
        assert ref(await stream.next("granted")).job_id == "job-1"
        # Neither a cursor nor a deduplication that a site kept swallows what is new.
        notice = await inbox.next("notice")
        assert notice.sequence > before.sequence
        assert notice.notice_id != before.notice_id


def dial(address: str) -> Any:
    return grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])


def parties(channel: Any) -> tuple[RawSite, RawDaemon]:
    return (
        RawSite(channel, "demo", keys_of("demo"), now_ms),
        RawDaemon(channel, "runner-1", keys_of("runner-1"), now_ms),
    )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def publish() -> site_plane_pb2.EnqueueJobRequest:
    return enqueue(id="job-1", deadline_time=timestamp(now_ms() + DAY_MS))
