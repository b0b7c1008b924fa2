"""One site and its device on the published relay, and the calls that take a job from one to the other."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Any
from uuid import UUID

from bench.peer_relay.callers import DeviceCaller, SiteCaller, now_ms
from bench.peer_relay.http import ConnectionPool
from bench.peer_relay.legs import Legs
from bench.peer_relay.party import Party, new_party
from bench.prompts import new_prompt

_SMALL_CHARACTERS = 4_000


@dataclass(frozen=True, slots=True)
class JobLoad:
    """How jobs are driven.

    Attributes:
        payload_bytes: size of each prompt, and of each answer.
        workers: pairs of a site and a device, each busy all the time.
        in_flight: jobs that each pair has under way together.
        deadline_ms: after this the relay forgets a job and its result. There is no other way to get rid of a
            result, and each is sent again with every collection until then, so a short one favours the peer.
    """

    payload_bytes: int = 1024
    workers: int = 16
    in_flight: int = 1
    deadline_ms: int = 3_000


@dataclass(frozen=True, slots=True)
class _Job:
    id: str
    prompt: str
    started: float


def new_stub(job_id: str, owner: str, site: Party, characters: int, deadline_ms: int) -> dict[str, Any]:
    """What the relay learns of a job: everything but its content.

    Args:
        deadline_ms: from now.
    """
    return {
        "id": job_id,
        "kind": "llm.generate",
        "owner": owner,
        "site": site.keys.key_id,
        "audience": "private",
        "sizeClass": "small" if characters <= _SMALL_CHARACTERS else "large",
        "streaming": False,
        "deadlineAt": now_ms() + deadline_ms,
    }


class Pair:
    """A site, and the one device that works for it, both in lockstep.

    Lockstep spares the peer every poll in vain: each side calls exactly when there is something to get.
    """

    site: SiteCaller
    device: DeviceCaller

    def __init__(self, owner: str, load: JobLoad, random: Random) -> None:
        self.owner = owner
        self.site_party = new_party(f"site-{owner}", random)
        self.device_party = new_party(f"runner-{owner}", random)
        self._legs = Legs(self.site_party, self.device_party)
        self._load = load
        self._random = random

    async def connect(self, port: int) -> None:
        size = self._load.in_flight
        self.site = SiteCaller(self.site_party, await ConnectionPool.open(port, size))
        self.device = DeviceCaller(self.device_party, await ConnectionPool.open(port, size))

    async def cycle(self) -> tuple[list[float], int]:
        """One batch of jobs from enqueue to checked answer: latencies in ms, and how many failed."""
        jobs = {job.id: job for job in (self._new_job() for _ in range(self._load.in_flight))}
        await asyncio.gather(*(self.site.enqueue(self._stub(job)) for job in jobs.values()))
        waiting = len(jobs)
        while waiting:
            # The peer grants an owner no more than two jobs that are not sealed yet.
            leases = await self._claim_and_seal(jobs, waiting)
            if not leases:
                break
            await asyncio.gather(*(self._run(job_id, lease_id) for job_id, lease_id in leases.items()))
            waiting -= len(leases)
        return await self._collect(list(jobs.values()))

    async def begin(self) -> tuple[str, str]:
        """Takes one job to where the device has its payload and runs it: job id and lease id."""
        job = self._new_job()
        await self.site.enqueue(self._stub(job))
        leases = await self._claim_and_seal({job.id: job}, 1)
        await self.device.fetch(job.id, leases[job.id])
        return job.id, leases[job.id]

    async def report_cancelled(self, job_id: str, lease_id: str) -> None:
        """Ends a job that was begun, as a device does that has been told to stop."""
        envelope = self._legs.outcome(job_id, {"outcome": "canceled"})
        await self.device.result(job_id, lease_id, envelope, "canceled")

    def close(self) -> None:
        for caller in (getattr(self, "site", None), getattr(self, "device", None)):
            if caller is not None:
                caller.close()

    def _new_job(self) -> _Job:
        identifier = str(UUID(bytes=self._random.randbytes(16), version=4))
        return _Job(identifier, new_prompt(self._load.payload_bytes, self._random), perf_counter())

    def _stub(self, job: _Job) -> dict[str, Any]:
        return new_stub(job.id, self.owner, self.site_party, len(job.prompt), self._load.deadline_ms)

    async def _claim_and_seal(self, jobs: Mapping[str, _Job], most: int) -> dict[str, str]:
        claimed = await self.device.claim(most)
        pending = await self.site.pending() if claimed else []
        # A batch that failed leaves jobs behind. They turn up here too, and are left to expire.
        envelopes = {
            entry["jobId"]: self._legs.payload(entry["jobId"], jobs[entry["jobId"]].prompt, entry["device"])
            for entry in pending
            if entry["jobId"] in jobs
        }
        await asyncio.gather(*(self.site.payload(job_id, sealed) for job_id, sealed in envelopes.items()))
        return {entry["id"]: entry["lease"]["id"] for entry in claimed if entry["id"] in envelopes}

    async def _run(self, job_id: str, lease_id: str) -> None:
        payload = await self.device.fetch(job_id, lease_id)
        await self.device.result(job_id, lease_id, self._legs.answer(job_id, payload), "ok")

    async def _collect(self, jobs: Sequence[_Job]) -> tuple[list[float], int]:
        finished = {entry["jobId"]: entry for entry in await self.site.results()}
        latencies = [
            (perf_counter() - job.started) * 1000
            for job in jobs
            if job.id in finished and self._legs.is_right(job.id, job.prompt, finished[job.id])
        ]
        return latencies, len(jobs) - len(latencies)
