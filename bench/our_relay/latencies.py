"""How soon a device knows, one job after the other on a relay that has nothing else to do."""

import asyncio
from abc import ABC, abstractmethod
from random import Random
from time import perf_counter

from bench.our_relay.connected_relay import WATCHER, WORKER, ConnectedRelay, Watch
from bench.variant import BurstResult, VariantFailedError, VariantUnavailableError
from relay_service.client.errors import JobEndedError, RelayError
from relay_service.client.payloads import GeneratePayload
from relay_service.client.site_jobs import JobHandle
from service_common.session_client import SessionLost

_PATIENCE_SECONDS = 5.0
# So many in a row say that something is broken rather than slow.
_MOST_FAILURES = 3


class _Latency(ABC):
    """Variant: one measurement after the other until the time or their number is up."""

    def __init__(self, name: str, relay: ConnectedRelay, most: int, seed: int = 1) -> None:
        self.name = name
        self._relay = relay
        self._most = most
        self._random = Random(seed)

    async def start(self) -> None:
        try:
            await self._relay.open()
            await self._open_device()
        except (RelayError, TimeoutError) as error:
            raise VariantUnavailableError(f"the client library found no relay: {error}") from error
        await self._measure()

    async def burst(self, seconds: float) -> BurstResult:
        meter = self._relay.meter()
        started = perf_counter()
        latencies: list[float] = []
        failures = in_a_row = 0
        while perf_counter() - started < seconds and len(latencies) < self._most:
            # Not at once: the device is to be as ready as one that waits.
            await asyncio.sleep(self._random.uniform(0.002, 0.01))
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    latencies.append(await self._measure() * 1000)
                in_a_row = 0
            except (TimeoutError, RelayError, JobEndedError, SessionLost) as error:
                failures, in_a_row = failures + 1, in_a_row + 1
                if in_a_row == _MOST_FAILURES:
                    raise VariantFailedError(f"{in_a_row} jobs in a row failed: {error!r}") from error
        elapsed = perf_counter() - started
        return BurstResult(len(latencies), latencies, meter.cpu_seconds(), meter.rss_kib(), elapsed, failures)

    async def stop(self) -> None:
        await self._relay.close()

    async def _open_device(self) -> None:
        """Connects the device that gets the jobs."""
        await self._relay.open_worker()

    @abstractmethod
    async def _measure(self) -> float:
        """One job: the seconds that are measured."""

    async def _enqueue(self, owner: str) -> JobHandle:
        return await self._relay.site.enqueue(GeneratePayload("hold on"), owner=owner, audience="private")


class OurStarts(_Latency):
    """From the site's enqueue, before the call, to the first line of the device's handler."""

    async def _measure(self) -> float:
        watch = self._relay.watch = Watch()
        self._relay.answers = True
        enqueued = perf_counter()
        job = await self._enqueue(WORKER)
        latency = await watch.started - enqueued
        await job.result()
        return latency


class OurHandlerCancels(_Latency):
    """From the site's cancel, before the call, until the running handler has been cancelled."""

    async def _measure(self) -> float:
        watch = self._relay.watch = Watch()
        self._relay.answers = False
        job = await self._enqueue(WORKER)
        await watch.started
        cancelled = perf_counter()
        await job.cancel()
        latency = await watch.cancelled - cancelled
        await _ended(job)
        return latency


class OurNoticeCancels(_Latency):
    """From the site's cancel, before the call, until the device's stream has read of it."""

    async def _open_device(self) -> None:
        await self._relay.open_watcher()

    async def _measure(self) -> float:
        watcher = self._relay.watcher
        told: asyncio.Future[float] = asyncio.get_running_loop().create_future()

        def note() -> None:
            if not told.done():
                told.set_result(perf_counter())

        watcher.on_cancel = note
        job = await self._enqueue(WATCHER)
        await watcher.holds_a_job()
        cancelled = perf_counter()
        await job.cancel()
        latency = await told - cancelled
        await watcher.give_up()
        await _ended(job)
        return latency


async def _ended(job: JobHandle) -> None:
    """Returns when the site knows the end of the job."""
    try:
        await job.result()
    except JobEndedError:
        return
