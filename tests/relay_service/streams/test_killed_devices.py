"""A device that is killed in the middle of its work, as a real process over a real socket."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from tests.harness.processes import RunningProcess, running
from tests.relay_service.relay_fixture import REPOSITORY, RelayUnderTest, ref

pytestmark = pytest.mark.process

CHILD = Path(__file__).with_name("daemon_child.py")


@asynccontextmanager
async def device(relay: RelayUnderTest) -> AsyncIterator[RunningProcess]:
    search = {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'protos/gen/python'}"}
    argv = [sys.executable, str(CHILD), relay.server.address, "runner-1"]
    async with running(argv, env=search, cwd=REPOSITORY, ready="^ready$") as process:
        yield process


async def working(relay: RelayUnderTest, process: RunningProcess) -> job_pb2.LeaseRef:
    """Has the device take job-1."""
    await relay.enqueue("job-1")
    await relay.becomes("job-1", "awaiting-payload")
    await relay.seal(job_pb2.LeaseRef(job_id="job-1", lease_id="lease-1"))
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
    taken = ref(await other.next("granted"))
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
        assert (await other.next("granted")).stub.id == "job-1"
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
