"""A relay with a Valkey server of its own: both are killed in the middle of the work, and nothing is lost."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import grpc.aio
import orjson
import pytest

from relay_service.client import GeneratePayload, JobResult, OkOutcome, Site
from relay_service.client.payloads import dump_payload
from relay_service.client.site_jobs import SiteJob
from sealwork.relay.v1 import job_pb2, site_plane_pb2
from service_common.clocks import SystemClock
from tests.harness.processes import running
from tests.harness.waiting import eventually
from tests.relay_service.raw_client import KIND, RawSite
from tests.relay_service.relay_fixture import DAY_MS, keys_of, timestamp
from tests.relay_service.replicas.relay_processes import (
    OWNERS,
    PEOPLE,
    SEARCH,
    Device,
    close_all,
    relay_command,
    relay_on,
    write_projection,
)
from tests.relay_service.store.valkey_fixture import free_port, require_valkey

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

JOBS = 1_000
BATCH = 100
# Jobs of a device that had them without knowing are taken back after this time.
LEASE = ("--lease", "3s")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    require_valkey()
    return tmp_path


@asynccontextmanager
async def raw_site(address: str) -> AsyncIterator[RawSite]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield RawSite(channel, "demo", keys_of("demo"), SystemClock().now_ms)


def stub(number: int) -> job_pb2.JobStub:
    return job_pb2.JobStub(
        id=f"job-{number:04}",
        kind=KIND,
        owner=PEOPLE[number % len(PEOPLE)],
        site=keys_of("demo").key_id,
        audience=job_pb2.AUDIENCE_TEAM,
        size_class=job_pb2.SIZE_CLASS_SMALL,
        deadline_time=timestamp(SystemClock().now_ms() + DAY_MS),
    )


async def enqueue_all(address: str) -> list[job_pb2.JobStub]:
    """Publishes jobs a hundred at a time, and returns them when the relay has confirmed each."""
    stubs = [stub(number) for number in range(JOBS)]
    async with raw_site(address) as site:
        for start in range(0, JOBS, BATCH):
            request = site_plane_pb2.EnqueueJobsRequest(stubs=stubs[start : start + BATCH])
            answer = await site.call("EnqueueJobs", request, timeout=30)
            assert all(result.enqueued.created for result in answer.results)
    return stubs


def kill_server(directory: Path) -> None:
    """Kills the Valkey server of a relay, as the relay has noted it."""
    note = orjson.loads((directory / "server.json").read_bytes())
    os.kill(note["process"], signal.SIGKILL)


async def collect(site: Site, published: job_pb2.JobStub, into: dict[str, JobResult]) -> None:
    """Waits for the result of a job that this site has published by a call of its own."""
    payload = dump_payload(GeneratePayload(f"prompt of {published.id}"))
    job = SiteJob(published, payload)
    site._jobs.add(job)
    result = await site._handle_of(job, acknowledge=True).result()
    assert published.id not in into
    into[published.id] = result


async def test_a_killed_relay_and_server_lose_none_of_a_thousand_jobs(folder: Path) -> None:
    directory, projection = folder / "store", write_projection(folder)
    address = f"127.0.0.1:{free_port()}"
    store = f"embedded:{directory}"
    kill_at = Random(20_261_129).randrange(200, 800)
    results: dict[str, JobResult] = {}
    async with AsyncExitStack() as parties:
        async with relay_on(store, projection, address, *LEASE) as first:
            stubs = await enqueue_all(address)
            names = [each.id for each in stubs]
            site = await parties.enter_async_context(Site(address, site_id="demo", keys=keys_of("demo")))
            collecting = asyncio.gather(*(collect(site, each, results) for each in stubs))
            devices = [Device(address, name, owner) for name, owner in OWNERS]
            parties.push_async_callback(close_all, devices)
            await eventually(lambda: len(results) >= kill_at, 100, lambda: f"{kill_at} of {len(results)}")
            kill_server(directory)
            first.kill()
            await first.wait()
        before = len(results)
        assert kill_at <= before < JOBS
        async with relay_on(store, projection, address, *LEASE):
            await eventually(
                lambda: len(results) == JOBS, 100, lambda: f"the end of {set(names) - set(results)}"
            )
            await collecting
            assert sorted(results) == names
            for name, result in results.items():
                assert result.outcome == OkOutcome(f"prompt of {name}"[::-1])
            await site.close()
            async with raw_site(address) as inbox:
                left = await inbox.call("ListNotices", site_plane_pb2.ListNoticesRequest())
                assert not left.notices


async def test_one_relay_at_a_time_has_a_directory(folder: Path) -> None:
    directory, projection = folder / "store", write_projection(folder)
    store = f"embedded:{directory}"
    async with relay_on(store, projection, "127.0.0.1:0") as first:
        argv = relay_command(store, projection, "--listen", "127.0.0.1:0")
        async with running(argv, env=SEARCH, cwd=folder) as second:
            assert await second.wait() == 2
            assert any(f"{directory} is in use by another relay" in line for line in second.stderr)
        assert first.returncode is None
        first.terminate()
        assert await first.wait() == 0
    async with relay_on(store, projection, "127.0.0.1:0") as third:
        assert third.returncode is None
