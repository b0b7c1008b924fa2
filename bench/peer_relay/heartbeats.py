"""Devices that keep in touch with the published relay: one signed heartbeat each, every ten seconds."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from time import perf_counter

from bench.peer_relay.callers import DeviceCaller
from bench.peer_relay.http import ConnectionPool
from bench.peer_relay.installation import Installer
from bench.peer_relay.pair import new_stub
from bench.peer_relay.party import Party, new_party
from bench.peer_relay.server import PeerServer, RunningJob, fixture
from bench.variant import BurstResult, VariantFailedError

HEARTBEAT_SECONDS = 10.0
_LATE_SECONDS = 5.0
_DRAIN_SECONDS = 50.0
_AT_ONCE = 64
# Jobs outlast the longest run.
_JOB_DEADLINE_MS = 3_600_000


@dataclass(slots=True)
class _Device:
    owner: str
    party: Party
    # Seconds until its next heartbeat, carried from one burst to the next.
    due_in: float
    caller: DeviceCaller | None = None
    leases: list[dict[str, str]] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    async def connect(self, port: int) -> None:
        self.caller = DeviceCaller(self.party, await ConnectionPool.open(port))

    def close(self) -> None:
        if self.caller is not None:
            self.caller.close()

    async def beat(self) -> None:
        assert self.caller is not None
        sent = perf_counter()
        await self.caller.heartbeat(self.leases)
        self.latencies.append((perf_counter() - sent) * 1000)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Devices of as many owners, all of one site; busy ones run a job each and renew its lease."""

    devices: int
    busy: bool = False


class PeerHeartbeats:
    """Variant: devices that keep in touch at their real pace, on a connection each.

    Only heartbeats are sent. The published client also claims once a heartbeat while it has room for a job;
    leaving that out favours the peer.
    """

    def __init__(self, name: str, installer: Installer, fleet: Fleet, seed: int = 1) -> None:
        self.name = name
        self._server = PeerServer(installer)
        self._fleet = fleet
        self._random = Random(seed)
        self._site = new_party("site-1", self._random)
        self._devices = [self._new_device(number) for number in range(fleet.devices)]

    async def start(self) -> None:
        owned = [(device.owner, self._site.caller_id, device.party) for device in self._devices]
        running = [self._running_job(device) for device in self._devices] if self._fleet.busy else []
        leases = await self._server.start(fixture([self._site], owned), running)
        for device in self._devices:
            device.leases = [leases[device.party.caller_id]] if self._fleet.busy else []
        for group in _groups(self._devices, _AT_ONCE):
            await asyncio.gather(*(device.connect(self._server.port) for device in group))
            # The first heartbeat costs the peer more than any later one: it finds the device and records it.
            await asyncio.gather(*(device.beat() for device in group))

    async def burst(self, seconds: float) -> BurstResult:
        """Counts what is answered within the time, and as failed what is not answered soon after it."""
        for device in self._devices:
            device.latencies.clear()
        meter = self._server.meter()
        started = perf_counter()
        until = started + seconds
        tasks = {asyncio.create_task(self._keep_in_touch(device, until)): device for device in self._devices}
        await asyncio.sleep(seconds)
        cpu, rss, elapsed = meter.cpu_seconds(), meter.rss_kib(), perf_counter() - started
        latencies = [latency for device in self._devices for latency in device.latencies]
        late = await self._settle(tasks)
        if not latencies:
            raise VariantFailedError("not one heartbeat was answered")
        return BurstResult(len(latencies), latencies, cpu, rss, elapsed, late)

    async def stop(self) -> None:
        for device in self._devices:
            device.close()
        await self._server.stop()

    def _new_device(self, number: int) -> _Device:
        # Spread evenly from the start, as devices that began at different times are.
        due_in = self._random.uniform(0, HEARTBEAT_SECONDS)
        return _Device(f"owner-{number}", new_party(f"runner-{number}", self._random), due_in)

    def _running_job(self, device: _Device) -> RunningJob:
        runner = device.party.caller_id
        stub = new_stub(f"job-{runner}", device.owner, self._site, 100, _JOB_DEADLINE_MS)
        return RunningJob(runner, self._site.caller_id, stub)

    async def _keep_in_touch(self, device: _Device, until: float) -> None:
        while perf_counter() + device.due_in < until:
            await asyncio.sleep(device.due_in)
            # Like the published client: the wait begins with the answer, and varies by 15 %.
            await device.beat()
            device.due_in = HEARTBEAT_SECONDS * self._random.uniform(0.85, 1.15)
        device.due_in -= until - perf_counter()

    async def _settle(self, tasks: Mapping["asyncio.Task[None]", _Device]) -> int:
        """Waits for answers on their way, so that nobody else's burst pays for them; how many were late."""
        _done, late = await asyncio.wait(tasks, timeout=_LATE_SECONDS)
        done, lost = await asyncio.wait(tasks, timeout=_DRAIN_SECONDS)
        for task in done:
            task.result()
        for task in lost:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            # An answer may still arrive, and must not be taken for that of a later heartbeat.
            tasks[task].close()
            await tasks[task].connect(self._server.port)
        return len(late)


def _groups(devices: Sequence[_Device], size: int) -> Iterator[list[_Device]]:
    rest = iter(devices)
    while group := list(islice(rest, size)):
        yield group
