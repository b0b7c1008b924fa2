"""Devices that hold a job each on our relay and renew its lease, on a connection each."""

import asyncio
from collections.abc import Callable
from random import Random
from time import perf_counter

from bench.our_relay.connected_device import ConnectedDevice, close_all, connect_all, groups
from bench.our_relay.legs import Legs
from bench.our_relay.server import OurServer, projection_of
from bench.our_relay.stream_site import StreamSite
from bench.peer_relay.party import new_party
from bench.variant import BurstResult, VariantFailedError

# What the relay tells its devices: a third of the lease of a minute.
DEFAULT_SECONDS = 20.0
_LATE_SECONDS = 5.0


class OurRenewals:
    """Variant: devices that renew at their pace from the moment they hold a job, in bursts and between them.

    It costs its server something all the time, so nothing else may be measured while it is up.

    Args:
        on_memory: told the server's memory for each device that is connected and holds nothing, in KiB. It is
            the slope from a tenth of the devices to all, since the first ones fill memory that reading
            the projection has left free.
    """

    def __init__(
        self,
        name: str,
        devices: int,
        renew_seconds: float,
        on_memory: Callable[[float], None] = lambda _kib: None,
        seed: int = 1,
    ) -> None:
        self.name = name
        self._on_memory = on_memory
        self._renew_seconds = renew_seconds
        self._random = Random(seed)
        self._server = OurServer("--wanted-daemons", str(devices))
        self._site_party = new_party("site-1", self._random)
        self._devices = [
            ConnectedDevice(
                f"owner-{number}", Legs(self._site_party, new_party(f"runner-{number}", self._random))
            )
            for number in range(devices)
        ]
        self._timers: dict[str, asyncio.TimerHandle] = {}

    async def start(self) -> None:
        owned = [(device.owner, "site-1", device.legs.device) for device in self._devices]
        await self._server.start(projection_of([self._site_party], owned))
        await self._connect()
        await self._hand_out_jobs()

    async def burst(self, seconds: float) -> BurstResult:
        """Counts what is answered within the time, and as failed what is lost or late."""
        for device in self._devices:
            device.latencies.clear()
            device.lost = 0
        meter = self._server.meter()
        started = perf_counter()
        await asyncio.sleep(seconds)
        until = perf_counter()
        cpu, rss = meter.cpu_seconds(), meter.rss_kib()
        latencies = [latency for device in self._devices for latency in device.latencies]
        failures = sum(device.lost for device in self._devices) + await self._count_late(until)
        if not latencies:
            raise VariantFailedError("not one renewal was answered")
        return BurstResult(len(latencies), latencies, cpu, rss, until - started, failures)

    async def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        await close_all(self._devices)
        await self._server.stop()

    async def _connect(self) -> None:
        first = max(1, len(self._devices) // 10)
        await connect_all(self._devices[:first], self._server.address)
        before = self._server.meter().rss_kib()
        rest = self._devices[first:]
        await connect_all(rest, self._server.address)
        if rest:
            self._on_memory((self._server.meter().rss_kib() - before) / len(rest))

    async def _hand_out_jobs(self) -> None:
        site = StreamSite(self._site_party, self._random)
        try:
            await site.connect(self._server.address)
            for group in groups(self._devices):
                for device in group:
                    site.begin_job(device.owner, "hold on", device.legs)
                await asyncio.gather(*(device.holds_a_job() for device in group))
                for device in group:
                    # Spread evenly from the start, as devices that began at different times are.
                    self._renew_in(self._random.uniform(0, self._renew_seconds), device)
        finally:
            await site.close()

    def _renew_in(self, seconds: float, device: ConnectedDevice) -> None:
        timer = asyncio.get_running_loop().call_later(seconds, self._renew, device)
        self._timers[device.owner] = timer

    def _renew(self, device: ConnectedDevice) -> None:
        device.renew()
        self._renew_in(self._renew_seconds * self._random.uniform(0.85, 1.15), device)

    async def _count_late(self, until: float) -> int:
        """Devices whose renewal from before this instant has no verdict when the patience is over."""
        deadline = perf_counter() + _LATE_SECONDS
        while waiting := [each for each in self._devices if each.asked_at and each.asked_at < until]:
            if perf_counter() > deadline:
                return len(waiting)
            await asyncio.sleep(0.1)
        return 0
