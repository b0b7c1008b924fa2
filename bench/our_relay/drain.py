"""A queue that has built up while no device was there, and how soon it is empty once they come."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter

from bench.our_relay.legs import Legs
from bench.our_relay.server import Deployment, projection_of
from bench.our_relay.stream_device import StreamDevice
from bench.our_relay.stream_site import StreamSite
from bench.peer_relay.party import new_party
from bench.prompts import new_prompt
from bench.variant import BurstResult, VariantFailedError

# Enqueued at a time by each site, so that its stream carries them in full frames and nothing piles up.
_TOGETHER = 50


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is queued, and for whom.

    Attributes:
        devices: each on a stream of its own, each with an owner of its own.
        slots: jobs that a device runs at a time.
        jobs: as many for each device as for any other.
    """

    jobs: int = 10_000
    devices: int = 100
    sites: int = 10
    slots: int = 4
    payload_bytes: int = 1024


class Drain:
    """Variant: one burst queues all jobs while the devices offer nothing, then counts from their first offer.

    Latencies are from that offer to the answer that the site has opened and checked, so the greatest of them
    is when the last job was done.
    """

    def __init__(self, name: str, server: Deployment, backlog: Backlog, seed: int = 1) -> None:
        self.name = name
        self._backlog = backlog
        self._random = Random(seed)
        self._server = server
        sites = [new_party(f"site-{number}", self._random) for number in range(backlog.sites)]
        self._sites = [StreamSite(site, self._random) for site in sites]
        self._legs = [
            Legs(sites[number % backlog.sites], new_party(f"runner-{number}", self._random))
            for number in range(backlog.devices)
        ]
        self._devices = [StreamDevice(legs, 0, self._random, most=0) for legs in self._legs]

    async def start(self) -> None:
        owned = [(_owner(number), legs.site.caller_id, legs.device) for number, legs in enumerate(self._legs)]
        await self._server.start(projection_of([site.party for site in self._sites], owned))
        for site in self._sites:
            await site.connect(self._server.site_address)
        for device in self._devices:
            await device.connect(self._server.device_address)

    async def burst(self, seconds: float) -> BurstResult:
        """Drains the whole queue; the time is only how long to wait for it at the most."""
        answers = await self._queue_all()
        latencies: list[float] = []
        meter = self._server.meter()
        started = perf_counter()
        for answer in answers:
            answer.add_done_callback(lambda _answer: latencies.append((perf_counter() - started) * 1000))
        for device in self._devices:
            # It has no room left when the queue is empty, so that the next burst begins as this one did.
            device.most += self._backlog.jobs // self._backlog.devices
            device.offer(self._backlog.slots)
        _done, waiting = await asyncio.wait(answers, timeout=seconds)
        elapsed = perf_counter() - started
        if waiting:
            raise VariantFailedError(
                f"{len(waiting):,} of {len(answers):,} jobs were left after {elapsed:.0f} s"
            )
        cpu, rss = meter.cpu_seconds(), meter.rss_kib()
        wrong = sum(not answer.result() for answer in answers)
        for site in self._sites:
            await site.settled()
        return BurstResult(len(answers) - wrong, latencies, cpu, rss, elapsed, wrong)

    async def stop(self) -> None:
        for site in self._sites:
            await site.close()
        for device in self._devices:
            await device.close()
        await self._server.stop()

    async def _queue_all(self) -> "Sequence[asyncio.Future[bool]]":
        answers: list[asyncio.Future[bool]] = []
        step = _TOGETHER * len(self._sites)
        for start in range(0, self._backlog.jobs, step):
            some = range(start, min(start + step, self._backlog.jobs))
            answers += [self._begin(number % self._backlog.devices) for number in some]
            for site in self._sites:
                await site.settled()
        return answers

    def _begin(self, number: int) -> "asyncio.Future[bool]":
        prompt = new_prompt(self._backlog.payload_bytes, self._random)
        site = self._sites[number % len(self._sites)]
        return site.begin_job(_owner(number), prompt, self._legs[number])


def _owner(number: int) -> str:
    return f"owner-{number}"
