"""Full job cycles on the published relay, at capacity."""

import asyncio
from random import Random
from time import perf_counter

from bench.peer_relay.callers import RefusedError
from bench.peer_relay.installation import Installer
from bench.peer_relay.pair import JobLoad, Pair
from bench.peer_relay.server import PeerServer, fixture
from bench.variant import BurstResult, VariantFailedError
from relay_service.client.envelope import EnvelopeRefused


class PeerJobs:
    """Variant: the full job cycle on the published relay."""

    def __init__(self, name: str, installer: Installer, load: JobLoad, seed: int = 1) -> None:
        self.name = name
        self._server = PeerServer(installer)
        self._load = load
        random = Random(seed)
        self._pairs = [Pair(f"owner-{number}", load, random) for number in range(load.workers)]

    async def start(self) -> None:
        sites = [pair.site_party for pair in self._pairs]
        devices = [(pair.owner, pair.site_party.caller_id, pair.device_party) for pair in self._pairs]
        await self._server.start(fixture(sites, devices))
        for pair in self._pairs:
            await pair.connect(self._server.port)
        await self.burst(1.0)

    async def burst(self, seconds: float) -> BurstResult:
        meter = self._server.meter()
        started = perf_counter()
        outcomes = await asyncio.gather(*(self._work(pair, started + seconds) for pair in self._pairs))
        elapsed = perf_counter() - started
        latencies = [latency for worked, _failed in outcomes for latency in worked]
        failures = sum(failed for _worked, failed in outcomes)
        if not latencies:
            raise VariantFailedError("not one job came through")
        return BurstResult(len(latencies), latencies, meter.cpu_seconds(), meter.rss_kib(), elapsed, failures)

    async def stop(self) -> None:
        for pair in self._pairs:
            pair.close()
        await self._server.stop()

    async def _work(self, pair: Pair, until: float) -> tuple[list[float], int]:
        latencies: list[float] = []
        failures = 0
        while perf_counter() < until:
            try:
                worked, failed = await pair.cycle()
            except (RefusedError, EnvelopeRefused):
                worked, failed = [], self._load.in_flight
            latencies += worked
            failures += failed
        return latencies, failures
