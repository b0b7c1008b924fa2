"""Devices that keep in touch with the published relay: one signed heartbeat each, every ten seconds."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from time import perf_counter

from bench.peer_relay.callers import SiteCaller
from bench.peer_relay.http import ConnectionPool
from bench.peer_relay.installation import Installation
from bench.peer_relay.pair import JobLoad, Pair
from bench.peer_relay.party import new_party
from bench.peer_relay.server import PeerServer, fixture
from bench.variant import BurstResult, VariantFailedError

HEARTBEAT_SECONDS = 10.0
_LATE_SECONDS = 5.0
_AT_ONCE = 64
# Jobs outlast the longest run.
_LOAD = JobLoad(payload_bytes=256, deadline_ms=3_600_000)


@dataclass(slots=True)
class _Device:
    pair: Pair
    # Seconds until its next heartbeat, carried from one burst to the next.
    due_in: float
    leases: list[dict[str, str]] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    async def beat(self) -> None:
        sent = perf_counter()
        await self.pair.device.heartbeat(self.leases)
        self.latencies.append((perf_counter() - sent) * 1000)

    async def take_job(self) -> None:
        job_id, lease_id = await self.pair.begin()
        self.leases = [{"jobId": job_id, "leaseId": lease_id}]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Devices of as many owners, all of one site; busy ones run a job each and renew its lease."""

    devices: int
    busy: bool = False


class PeerHeartbeats:
    """Variant: devices that keep in touch at their real pace, on a connection each.

    Only the heartbeats are sent. The published client also claims once a heartbeat while it has room for a
    job; leaving that out favours the peer.
    """

    def __init__(self, name: str, installation: Installation, fleet: Fleet, seed: int = 1) -> None:
        self.name = name
        self._server = PeerServer(installation)
        self._fleet = fleet
        self._random = Random(seed)
        self._site_party = new_party("site-1", self._random)
        self._site: SiteCaller | None = None
        self._devices = [self._new_device(number) for number in range(fleet.devices)]

    async def start(self) -> None:
        owned = [(device.pair.owner, "site-1", device.pair.device_party) for device in self._devices]
        await self._server.start(fixture([self._site_party], owned))
        self._site = SiteCaller(self._site_party, await ConnectionPool.open(self._server.port, _AT_ONCE))
        for group in _groups(self._devices, _AT_ONCE):
            await asyncio.gather(*(self._bring_up(device) for device in group))
        for device in self._devices:
            device.latencies.clear()

    async def burst(self, seconds: float) -> BurstResult:
        meter = self._server.meter()
        started = perf_counter()
        until = started + seconds
        tasks = {asyncio.create_task(self._keep_in_touch(device, until)): device for device in self._devices}
        done, late = await asyncio.wait(tasks, timeout=seconds + _LATE_SECONDS)
        await asyncio.sleep(until - perf_counter())
        cpu, rss, elapsed = meter.cpu_seconds(), meter.rss_kib(), perf_counter() - started
        for task in done:
            task.result()
        for task in late:
            await self._give_up(task, tasks[task])
        latencies = [latency for device in self._devices for latency in device.latencies]
        for device in self._devices:
            device.latencies.clear()
        if not latencies:
            raise VariantFailedError("not one heartbeat was answered")
        return BurstResult(len(latencies), latencies, cpu, rss, elapsed, len(late))

    async def stop(self) -> None:
        for device in self._devices:
            device.pair.close()
        await self._server.stop()

    def _new_device(self, number: int) -> _Device:
        pair = Pair(f"owner-{number}", _LOAD, self._random, self._site_party)
        # Spread evenly from the start, as devices that began at different times are.
        return _Device(pair, self._random.uniform(0, HEARTBEAT_SECONDS))

    async def _bring_up(self, device: _Device) -> None:
        await device.pair.connect(self._server.port, self._site)
        # The first heartbeat costs the peer more than any later one: it finds the device and records it.
        await device.beat()
        if self._fleet.busy:
            await device.take_job()

    async def _keep_in_touch(self, device: _Device, until: float) -> None:
        while perf_counter() + device.due_in < until:
            await asyncio.sleep(device.due_in)
            # Like the published client: the wait begins with the answer, and varies by 15 %.
            await device.beat()
            device.due_in = HEARTBEAT_SECONDS * self._random.uniform(0.85, 1.15)
        device.due_in -= until - perf_counter()

    async def _give_up(self, task: asyncio.Task[None], device: _Device) -> None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        # The late answer may still arrive, and must not be taken for that of a later heartbeat.
        device.pair.device.close()
        await device.pair.connect(self._server.port, self._site)
        device.due_in = self._random.uniform(0, HEARTBEAT_SECONDS)


def _groups(devices: Sequence[_Device], size: int) -> Iterator[list[_Device]]:
    rest = iter(devices)
    while group := list(islice(rest, size)):
        yield group
