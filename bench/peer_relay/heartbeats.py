"""Devices that keep in touch with the published relay: one signed heartbeat each, every ten seconds."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from time import perf_counter

from bench.peer_relay.callers import DeviceCaller
from bench.peer_relay.http import ConnectionPool
from bench.peer_relay.installation import Installation
from bench.peer_relay.server import PeerServer, fixture, new_party
from bench.peer_relay.wire import Party
from bench.variant import BurstResult, VariantFailed

HEARTBEAT_SECONDS = 10.0
_LATE_SECONDS = 5.0
_AT_ONCE = 64


@dataclass(slots=True)
class _Device:
    party: Party
    # Seconds until its next heartbeat, carried from one burst to the next.
    due_in: float
    caller: DeviceCaller | None = None
    latencies: list[float] = field(default_factory=list)

    async def beat(self) -> None:
        assert self.caller is not None
        sent = perf_counter()
        await self.caller.heartbeat()
        self.latencies.append((perf_counter() - sent) * 1000)


class PeerHeartbeats:
    """Variant: idle devices at their real pace, on a connection each.

    Only the heartbeats are sent. The published client also claims once a heartbeat; leaving that out favours
    the peer.
    """

    def __init__(self, name: str, installation: Installation, devices: int, seed: int = 1) -> None:
        self.name = name
        self._server = PeerServer(installation)
        self._random = Random(seed)
        self._devices = list(self._new_devices(devices))

    async def start(self) -> None:
        site = new_party("site-1", self._random)
        owned = [(f"owner-{number}", "site-1", device.party) for number, device in enumerate(self._devices)]
        await self._server.start(fixture([site], owned))
        for group in _groups(self._devices, _AT_ONCE):
            await asyncio.gather(*(self._connect(device) for device in group))
            # The first heartbeat costs the peer more than any later one: it finds the device and records it.
            await asyncio.gather(*(device.beat() for device in group))
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
            raise VariantFailed("not one heartbeat was answered")
        return BurstResult(len(latencies), latencies, cpu, rss, elapsed, len(late))

    async def stop(self) -> None:
        for device in self._devices:
            if device.caller is not None:
                device.caller.close()
        await self._server.stop()

    def _new_devices(self, count: int) -> Iterator[_Device]:
        for number in range(count):
            # Spread evenly from the start, as devices that began at different times are.
            yield _Device(new_party(f"runner-{number}", self._random), self._random.uniform(0, HEARTBEAT_SECONDS))

    async def _connect(self, device: _Device) -> None:
        device.caller = DeviceCaller(device.party, await ConnectionPool.open(self._server.port))

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
        assert device.caller is not None
        # The late answer may still arrive, and must not be taken for that of a later heartbeat.
        device.caller.close()
        await self._connect(device)
        device.due_in = self._random.uniform(0, HEARTBEAT_SECONDS)


def _groups(devices: Sequence[_Device], size: int) -> Iterator[list[_Device]]:
    rest = iter(devices)
    while group := list(islice(rest, size)):
        yield group
