"""One site and its device that use no stream: every step of a job is a signed unary call."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter
from uuid import UUID

from google.protobuf.duration_pb2 import Duration

from bench.our_relay.legs import Legs
from bench.our_relay.parties import ROW, new_job_stub, unary_calls
from bench.peer_relay.pair import JobLoad
from bench.prompts import new_prompt
from relay_service.client.calls import (
    ACK_RESULTS,
    CLAIM_JOBS,
    COMPLETE_JOB,
    ENQUEUE_JOB,
    FETCH_PAYLOAD,
    GET_RESULT,
    LIST_NOTICES,
    SEAL_PAYLOAD,
    Calls,
)
from relay_service.client.connection import Connection
from relay_service.client.envelope import EnvelopeRefused
from relay_service.client.errors import RelayError
from relay_service.client.wire import capability_to_proto, identity_from_proto
from sealwork.relay.v1 import daemon_plane_pb2 as daemon
from sealwork.relay.v1 import job_pb2
from sealwork.relay.v1 import site_plane_pb2 as site

_WAIT = Duration(seconds=5)
_Granted = Sequence[daemon.Granted]


@dataclass(frozen=True, slots=True)
class _Job:
    stub: job_pb2.JobStub
    prompt: str
    started: float


class UnaryPair:
    """A site and the one device that works for it, in lockstep, so that no call waits in vain.

    The calls are those that a client without streams makes: the site reads its inbox to learn of the claim,
    and once more to learn of the result.
    """

    def __init__(self, owner: str, legs: Legs, load: JobLoad, random: Random) -> None:
        self._owner = owner
        self._legs = legs
        self._load = load
        self._random = random
        self._site: Calls | None = None
        self._device: Calls | None = None

    async def connect(self, address: str) -> None:
        connection = Connection(address)
        self._site = unary_calls(connection, self._legs.site, self._random)
        self._device = unary_calls(connection, self._legs.device, self._random)

    async def work(self, until: float) -> tuple[list[float], int]:
        """Runs batches of jobs until this instant: latencies in ms, and how many failed."""
        latencies: list[float] = []
        failures = 0
        while perf_counter() < until:
            try:
                worked, failed = await self._cycle()
            except (RelayError, EnvelopeRefused):
                worked, failed = [], self._load.in_flight
            latencies += worked
            failures += failed
        return latencies, failures

    async def close(self) -> None:
        for calls in (self._site, self._device):
            if calls is not None:
                await calls.close()

    async def _cycle(self) -> tuple[list[float], int]:
        """One batch from enqueue to checked answer."""
        jobs = {job.stub.id: job for job in (self._new_job() for _ in range(self._load.in_flight))}
        await asyncio.gather(*(self._enqueue(job) for job in jobs.values()))
        waiting = len(jobs)
        while waiting:
            # The relay grants an owner no more than two jobs that are not sealed yet.
            granted = await self._claim(waiting)
            if not granted:
                break
            await self._seal(jobs)
            await asyncio.gather(*(self._run(each) for each in granted))
            waiting -= len(granted)
        return await self._collect(list(jobs.values()))

    def _new_job(self) -> _Job:
        started = perf_counter()
        prompt = new_prompt(self._load.payload_bytes, self._random)
        return _Job(new_job_stub(self._owner, self._legs.site, prompt, self._random), prompt, started)

    async def _enqueue(self, job: _Job) -> None:
        assert self._site is not None
        await self._site.call(ENQUEUE_JOB, site.EnqueueJobRequest(stub=job.stub))

    async def _claim(self, most: int) -> _Granted:
        assert self._device is not None
        request_id = str(UUID(bytes=self._random.randbytes(16), version=4))
        request = daemon.ClaimJobsRequest(
            request_id=request_id, matrix=[capability_to_proto(ROW)], max_jobs=most, wait=_WAIT
        )
        return (await self._device.call(CLAIM_JOBS, request)).granted

    async def _notices(self) -> Sequence[site.SiteNotice]:
        assert self._site is not None
        return (await self._site.call(LIST_NOTICES, site.ListNoticesRequest(wait=_WAIT))).notices

    async def _seal(self, jobs: dict[str, _Job]) -> None:
        # A batch that failed leaves rows behind, of jobs that are none of this one.
        asked = [
            notice
            for notice in await self._notices()
            if notice.WhichOneof("notice") == "please_seal" and notice.job_id in jobs
        ]
        await asyncio.gather(*(self._seal_one(jobs[notice.job_id], notice.please_seal) for notice in asked))

    async def _seal_one(self, job: _Job, asked: site.PleaseSeal) -> None:
        assert self._site is not None
        envelope = self._legs.payload(job.stub.id, job.prompt, identity_from_proto(asked.device))
        request = site.SealPayloadRequest(job_id=job.stub.id, lease_id=asked.lease_id, envelope=envelope)
        await self._site.call(SEAL_PAYLOAD, request)

    async def _run(self, granted: daemon.Granted) -> None:
        assert self._device is not None
        lease = job_pb2.LeaseRef(job_id=granted.stub.id, lease_id=granted.lease.id)
        fetched = await self._device.call(FETCH_PAYLOAD, daemon.FetchPayloadRequest(lease=lease))
        answer = self._legs.answer(lease.job_id, fetched.envelope)
        request = daemon.CompleteJobRequest(lease=lease, envelope=answer, disposition=job_pb2.DISPOSITION_OK)
        await self._device.call(COMPLETE_JOB, request)

    async def _collect(self, jobs: Sequence[_Job]) -> tuple[list[float], int]:
        assert self._site is not None
        ready = {
            notice.job_id for notice in await self._notices() if notice.WhichOneof("notice") == "result_ready"
        }
        found = await asyncio.gather(*(self._result_of(job) for job in jobs if job.stub.id in ready))
        latencies = [latency for latency in found if latency is not None]
        if ready:
            await self._site.call(ACK_RESULTS, site.AckResultsRequest(job_ids=sorted(ready)))
        return latencies, len(jobs) - len(latencies)

    async def _result_of(self, job: _Job) -> float | None:
        assert self._site is not None
        result = await self._site.call(GET_RESULT, site.GetResultRequest(job_id=job.stub.id))
        right = self._legs.is_right(job.stub.id, job.prompt, result.disposition, result.envelope)
        return (perf_counter() - job.started) * 1000 if right else None
