"""Entries written under leases, through the service and by its store alone."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import orjson

from bench.durable.bare_worker import BareWorker
from bench.durable.child import Child
from bench.durable.server import DurableProcess
from bench.variant import BurstResult, VariantFailedError, VariantUnavailableError
from durable_service.client.errors import DurableError
from service_common.session_client import SessionLost

_START_SECONDS = 60.0
WARM_UP_SECONDS = 0.3

Write = Callable[[], Awaitable[None]]


class ServedWrites:
    """Variant: so many writes at a time, each to a task of its own, through the service.

    Args:
        store: behind the service.
        workers: with a stream and a connection each.
        in_flight: of each worker.
        unary: write by unary calls instead of on the streams.
        environment: variables that are set for the service alone.

    Attributes:
        load_ms: CPU that this process took for each write, in milliseconds, by burst.
    """

    def __init__(
        self,
        name: str,
        store: str,
        workers: int,
        *,
        in_flight: int = 1,
        unary: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.load_ms: list[float] = []
        self._in_flight = in_flight
        self._unary = unary
        self._server = DurableProcess(store, environment=environment)
        self._workers = [BareWorker(number) for number in range(workers)]
        self._lanes: list[Write] = []

    async def start(self) -> None:
        await self._server.start()
        try:
            for worker in self._workers:
                await worker.connect(self._server.address)
                for _ in range(self._in_flight):
                    await worker.create()
                    await worker.claim()
                write = worker.append_by_unary if self._unary else worker.append
                self._lanes += [partial(write, lease) for lease in worker.leases]
        except DurableError as error:
            raise VariantUnavailableError(f"the service refused to begin: {error}") from error
        await self.burst(WARM_UP_SECONDS)

    async def burst(self, seconds: float) -> BurstResult:
        meter, started, load_started = self._server.meter(), perf_counter(), process_time()
        try:
            lanes = await asyncio.gather(*(write_in_turn(lane, started + seconds) for lane in self._lanes))
        except (DurableError, SessionLost) as error:
            raise VariantFailedError(f"a write was refused: {error}") from error
        elapsed, load = perf_counter() - started, process_time() - load_started
        latencies = [each for lane in lanes for each in lane]
        self.load_ms.append(load * 1000 / max(1, len(latencies)))
        return BurstResult(len(latencies), latencies, meter.cpu_seconds(), meter.rss_kib(), elapsed)

    async def stop(self) -> None:
        for worker in self._workers:
            await worker.close()
        await self._server.stop()


class BareWrites:
    """Variant: as many writes at a time to a SQLite store in a process that has nothing else to do."""

    def __init__(self, name: str, lanes: int) -> None:
        self.name = name
        self._lanes = lanes
        self._folder: TemporaryDirectory[str] | None = None
        self._child: Child | None = None

    async def start(self) -> None:
        self._folder = TemporaryDirectory(prefix="bench-durable-")
        self._child = Child("bench.durable.bare_store", self._folder.name, str(self._lanes))
        await self._child.start(_START_SECONDS)
        await self.burst(WARM_UP_SECONDS)

    async def burst(self, seconds: float) -> BurstResult:
        assert self._child is not None
        meter = self._child.meter()
        told = orjson.loads(await self._child.ask(str(seconds)))
        return BurstResult(
            told["operations"], told["latencies"], meter.cpu_seconds(), meter.rss_kib(), told["elapsed"]
        )

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop()
        if self._folder is not None:
            self._folder.cleanup()


async def write_in_turn(write: Write, until: float) -> list[float]:
    """Writes one after the other until then; their latencies in milliseconds."""
    latencies = []
    while (started := perf_counter()) < until:
        await write()
        latencies.append((perf_counter() - started) * 1000)
    return latencies
