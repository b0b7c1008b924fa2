"""One site and its device on the published relay: a job's seven calls, sealed, signed and checked at both ends."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter
from typing import Any
from uuid import UUID

import orjson

from bench.peer_relay.callers import DeviceCaller, SiteCaller, now_ms
from bench.peer_relay.http import ConnectionPool
from bench.peer_relay.server import new_party
from bench.peer_relay.wire import ENVELOPE_MAX_AGE_MS, EnvelopeError, Party, Route, decode, open_envelope, seal
from bench.prompts import answer_to, new_prompt


@dataclass(frozen=True, slots=True)
class JobLoad:
    """How the cycles are driven.

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


@dataclass(slots=True)
class _Job:
    id: str
    prompt: str
    started: float


class Pair:
    """One site and the one device that works for it, taking jobs through all seven calls in lockstep.

    Lockstep spares the peer every poll in vain: each side calls exactly when there is something to get.
    """

    def __init__(self, owner: str, load: JobLoad, random: Random) -> None:
        self.owner = owner
        self.site_party: Party = new_party(f"site-{owner}", random)
        self.device_party: Party = new_party(f"runner-{owner}", random)
        self._load = load
        self._random = random
        self._site: SiteCaller
        self._device: DeviceCaller

    async def connect(self, port: int) -> None:
        size = self._load.in_flight
        self._site = SiteCaller(self.site_party, await ConnectionPool.open(port, size))
        self._device = DeviceCaller(self.device_party, await ConnectionPool.open(port, size))

    def close(self) -> None:
        for caller in ("_site", "_device"):
            if hasattr(self, caller):
                getattr(self, caller).close()

    async def cycle(self) -> tuple[list[float], int]:
        """One batch of jobs from enqueue to checked answer: latencies in ms, and how many failed."""
        jobs = [self._new_job() for _ in range(self._load.in_flight)]
        await asyncio.gather(*(self._site.enqueue(self._stub(job)) for job in jobs))
        known, waiting = {job.id for job in jobs}, len(jobs)
        while waiting:
            # The peer grants an owner no more than two jobs that are not sealed yet.
            claimed = await self._device.claim(waiting)
            if not claimed:
                break
            await self._seal_all(jobs)
            # A batch that failed leaves jobs behind; they are claimed too, and left to expire.
            ours = [job for job in claimed if job["id"] in known]
            await asyncio.gather(*(self._run(job["id"], job["lease"]["id"]) for job in ours))
            waiting -= len(ours)
        return await self._collect(jobs)

    def _new_job(self) -> _Job:
        identifier = str(UUID(bytes=self._random.randbytes(16), version=4))
        return _Job(identifier, new_prompt(self._load.payload_bytes, self._random), perf_counter())

    def _stub(self, job: _Job) -> dict[str, Any]:
        return {
            "id": job.id,
            "kind": "llm.generate",
            "owner": self.owner,
            "site": self.site_party.key_id,
            "audience": "private",
            "sizeClass": "small" if self._load.payload_bytes <= 4_000 else "large",
            "streaming": False,
            "deadlineAt": now_ms() + self._load.deadline_ms,
        }

    async def _seal_all(self, jobs: Iterable[_Job]) -> None:
        prompts = {job.id: job.prompt for job in jobs}
        sealed = []
        for pending in await self._site.pending():
            if pending["jobId"] not in prompts:
                continue
            recipient = decode(pending["device"]["encryption"])
            route = self._route(pending["jobId"], "payload")
            plaintext = orjson.dumps({"prompt": prompts[pending["jobId"]]}).decode()
            envelope = seal(route, self.site_party, recipient, plaintext, now_ms() + ENVELOPE_MAX_AGE_MS)
            sealed.append(self._site.payload(pending["jobId"], envelope))
        await asyncio.gather(*sealed)

    async def _run(self, job_id: str, lease_id: str) -> None:
        envelope = await self._device.fetch(job_id, lease_id)
        route = self._route(job_id, "payload")
        plaintext = open_envelope(route, envelope, self.device_party, self.site_party.identity_public)
        answer = answer_to(orjson.loads(plaintext)["prompt"])
        outcome = {
            "outcome": {"outcome": "ok", "text": answer},
            "ran": {"model": "bench", "backendClass": "http", "durationMs": 0, "stop": "end", "stopReported": True},
        }
        sealed = seal(
            self._route(job_id, "result"),
            self.device_party,
            self.site_party.encryption_public,
            orjson.dumps(outcome).decode(),
            now_ms() + ENVELOPE_MAX_AGE_MS,
        )
        await self._device.result(job_id, lease_id, sealed, "ok")

    async def _collect(self, jobs: Sequence[_Job]) -> tuple[list[float], int]:
        finished = {entry["jobId"]: entry for entry in await self._site.results()}
        latencies = []
        for job in jobs:
            if job.id in finished and self._answered_rightly(job, finished[job.id]):
                latencies.append((perf_counter() - job.started) * 1000)
        return latencies, len(jobs) - len(latencies)

    def _answered_rightly(self, job: _Job, finished: dict[str, Any]) -> bool:
        route = self._route(job.id, "result")
        try:
            sealed = finished["envelope"]
            plaintext = open_envelope(route, sealed, self.site_party, self.device_party.identity_public)
        except EnvelopeError:
            return False
        outcome = orjson.loads(plaintext)["outcome"]
        return bool(finished["disposition"] == "ok" and outcome["text"] == answer_to(job.prompt))

    def _route(self, job_id: str, direction: str) -> Route:
        site, device = self.site_party.key_id, self.device_party.key_id
        sender, recipient = (site, device) if direction == "payload" else (device, site)
        return Route(job_id, sender, recipient, direction)
