"""How long a cancelled job runs on: the published relay tells a device at its next heartbeat."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from time import perf_counter

from bench.peer_relay.heartbeats import HEARTBEAT_SECONDS
from bench.peer_relay.installation import Installer
from bench.peer_relay.pair import JobLoad, Pair
from bench.peer_relay.server import PeerServer, fixture
from bench.variant import BurstResult, VariantFailedError

# The published client's waits after a claim, as shares of its heartbeat, the last repeated for ever.
_LADDER = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
# Longer than any wait of that client: a cancel not reported by then was lost.
_PATIENCE_SECONDS = HEARTBEAT_SECONDS * 1.15 + 1.5


def waits(random: Random) -> Iterator[float]:
    """Seconds the published client lets pass between one heartbeat and the next, beginning at a claim."""
    for share in _LADDER[:-1]:
        yield HEARTBEAT_SECONDS * share + random.uniform(0.2, 0.5)
    while True:
        yield HEARTBEAT_SECONDS * random.uniform(0.85, 1.15)


@dataclass(frozen=True, slots=True)
class _Held:
    pair: Pair
    job_id: str
    lease_id: str


class PeerCancels:
    """Variant: devices that run one job each, cancelled at a random age.

    Times count from the answer to the site's cancel to the heartbeat's answer that names the job.
    """

    def __init__(self, name: str, installer: Installer, daemons: int = 100, seed: int = 1) -> None:
        self.name = name
        self._server = PeerServer(installer)
        self._random = Random(seed)
        load = JobLoad(payload_bytes=256, workers=daemons, deadline_ms=300_000)
        self._pairs = [Pair(f"owner-{number}", load, self._random) for number in range(daemons)]

    async def start(self) -> None:
        sites = [pair.site_party for pair in self._pairs]
        devices = [(pair.owner, pair.site_party.caller_id, pair.device_party) for pair in self._pairs]
        await self._server.start(fixture(sites, devices))
        for pair in self._pairs:
            await pair.connect(self._server.port)

    async def burst(self, seconds: float) -> BurstResult:
        """Cancels each daemon's job at an age drawn evenly from this span, then waits for the last notice."""
        meter = self._server.meter()
        started = perf_counter()
        found = await asyncio.gather(*(self._cancelled_job(pair, seconds) for pair in self._pairs))
        elapsed = perf_counter() - started
        latencies = [latency for latency in found if latency is not None]
        if not latencies:
            raise VariantFailedError("not one cancel was reported")
        failures = len(found) - len(latencies)
        return BurstResult(len(latencies), latencies, meter.cpu_seconds(), meter.rss_kib(), elapsed, failures)

    async def stop(self) -> None:
        for pair in self._pairs:
            pair.close()
        await self._server.stop()

    async def _cancelled_job(self, pair: Pair, span: float) -> float | None:
        job_id, lease_id = await pair.begin()
        held = _Held(pair, job_id, lease_id)
        told = asyncio.create_task(self._until_told(held))
        await asyncio.sleep(self._random.uniform(0, span))
        await pair.site.cancel(job_id)
        cancelled = perf_counter()
        try:
            at = await asyncio.wait_for(told, _PATIENCE_SECONDS)
        except TimeoutError:
            return None
        await pair.report_cancelled(job_id, lease_id)
        return (at - cancelled) * 1000

    async def _until_told(self, held: _Held) -> float:
        """Heartbeats at the client's pace until one names the job as cancelled; when its answer came."""
        lease = {"jobId": held.job_id, "leaseId": held.lease_id}
        for wait in waits(self._random):
            await asyncio.sleep(wait)
            answer = await held.pair.device.heartbeat([lease])
            if lease in answer["cancel"]:
                return perf_counter()
        raise AssertionError("the waits never end")
