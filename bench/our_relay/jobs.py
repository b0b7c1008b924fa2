"""Full job cycles on our relay, at capacity."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from time import perf_counter

from bench.our_relay.legs import Legs
from bench.our_relay.server import Deployment, OurServer, projection_of
from bench.our_relay.stream_device import StreamDevice
from bench.our_relay.stream_site import StreamSite
from bench.our_relay.unary_pair import UnaryPair
from bench.peer_relay.pair import JobLoad
from bench.peer_relay.party import Party, new_party
from bench.prompts import new_prompt
from bench.variant import BurstResult, VariantFailedError

_Outcome = tuple[list[float], int]
# Streams stay silent while others are measured, and must not be ended for that.
QUIET = ("--heartbeat", "60s", "--liveness", "600s")


class _OurJobs(ABC):
    def __init__(
        self, name: str, load: JobLoad, sites: int, seed: int, server: Deployment | None = None
    ) -> None:
        self.name = name
        self._load = load
        self._random = Random(seed)
        self._server = server or OurServer(*QUIET)
        self._sites = [new_party(f"site-{number}", self._random) for number in range(sites)]
        self._legs = {
            f"owner-{number}": Legs(self._sites[number % sites], new_party(f"runner-{number}", self._random))
            for number in range(load.workers)
        }

    async def start(self) -> None:
        await self._server.start(projection_of(self._sites, self._devices()))
        await self._connect(self._server.site_address, self._server.device_address)
        await self.burst(1.0)

    async def burst(self, seconds: float) -> BurstResult:
        meter = self._server.meter()
        started = perf_counter()
        outcomes = await self._work(started + seconds)
        elapsed = perf_counter() - started
        latencies = [latency for worked, _failed in outcomes for latency in worked]
        failures = sum(failed for _worked, failed in outcomes)
        if not latencies:
            raise VariantFailedError("not one job came through")
        return BurstResult(len(latencies), latencies, meter.cpu_seconds(), meter.rss_kib(), elapsed, failures)

    async def stop(self) -> None:
        await self._close()
        await self._server.stop()

    def _devices(self) -> Sequence[tuple[str, str, Party]]:
        return [(owner, legs.site.caller_id, legs.device) for owner, legs in self._legs.items()]

    @abstractmethod
    async def _connect(self, sites_at: str, devices_at: str) -> None: ...

    @abstractmethod
    async def _work(self, until: float) -> Sequence[_Outcome]: ...

    @abstractmethod
    async def _close(self) -> None: ...


class OurSessionJobs(_OurJobs):
    """Variant: the hot path on the streams of sites and devices.

    Args:
        sites: as many as there are workers gives each device a site of its own, as the peer's load has it;
            one is a site with many devices.
        server: one relay with the store in its memory by default.
    """

    def __init__(
        self,
        name: str,
        load: JobLoad,
        sites: int | None = None,
        seed: int = 1,
        server: Deployment | None = None,
    ) -> None:
        super().__init__(name, load, sites or load.workers, seed, server)
        by_party = {site.caller_id: StreamSite(site, self._random) for site in self._sites}
        self._stream_sites = list(by_party.values())
        self._site_of = {owner: by_party[legs.site.caller_id] for owner, legs in self._legs.items()}
        self._stream_devices = [
            StreamDevice(legs, load.in_flight, self._random) for legs in self._legs.values()
        ]

    async def _connect(self, sites_at: str, devices_at: str) -> None:
        for site in self._stream_sites:
            await site.connect(sites_at)
        for device in self._stream_devices:
            await device.connect(devices_at)

    async def _work(self, until: float) -> Sequence[_Outcome]:
        slots = [self._slot(owner, until) for owner in self._legs for _ in range(self._load.in_flight)]
        outcomes = await asyncio.gather(*slots)
        for site in self._stream_sites:
            await site.settled()
        return outcomes

    async def _slot(self, owner: str, until: float) -> _Outcome:
        latencies: list[float] = []
        failures = 0
        while (started := perf_counter()) < until:
            prompt = new_prompt(self._load.payload_bytes, self._random)
            if await self._site_of[owner].run_job(owner, prompt, self._legs[owner]):
                latencies.append((perf_counter() - started) * 1000)
            else:
                failures += 1
        return latencies, failures

    async def _close(self) -> None:
        for site in self._stream_sites:
            await site.close()
        for device in self._stream_devices:
            await device.close()


class OurUnaryJobs(_OurJobs):
    """Variant: the same jobs by the unary twins alone."""

    def __init__(self, name: str, load: JobLoad, seed: int = 1) -> None:
        super().__init__(name, load, load.workers, seed)
        self._pairs = [UnaryPair(owner, legs, load, self._random) for owner, legs in self._legs.items()]

    async def _connect(self, sites_at: str, devices_at: str) -> None:
        assert sites_at == devices_at
        for pair in self._pairs:
            await pair.connect(sites_at)

    async def _work(self, until: float) -> Sequence[_Outcome]:
        return await asyncio.gather(*(pair.work(until) for pair in self._pairs))

    async def _close(self) -> None:
        for pair in self._pairs:
            await pair.close()
