"""What is measured against each other: services on a store, and a loop on the database by itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Protocol

import orjson

from bench.databases.database import Database, DatabaseKind
from bench.databases.shares import Shares, SharesMeter
from bench.durable.bare_worker import BareWorker
from bench.durable.child import Child
from bench.durable.crew import Crew, Operation
from bench.placement import on_all_cores
from bench.process_stats import ServerMeter
from bench.variant import VariantFailedError

BARE = "bare write"
_DATABASE = "bench"
_START_SECONDS = 90.0
_MISSES = 100


@dataclass(frozen=True, slots=True)
class Burst:
    """One operation, carried out so many times."""

    latencies_ms: Sequence[float]
    shares: Shares

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.shares.cores(len(self.latencies_ms))


class Contestant(Protocol):
    """One of those that are up at the same time.

    Attributes:
        operations: what it can be asked for, in this order.
    """

    name: str
    operations: Sequence[str]

    async def start(self) -> None:
        """Brings it up; raises VariantUnavailableError where it cannot be."""
        ...

    async def stop(self) -> None:
        """Takes everything down; also after a failed start."""
        ...

    async def enter(self, workers: int) -> None:
        """Connects so many workers, after those before have left."""
        ...

    async def leave(self) -> None:
        """Disconnects them."""
        ...

    async def carry_out(self, operation: str, turns: int) -> Burst:
        """Lets each worker do this so many times; raises VariantFailedError when something is refused."""
        ...


class PatientWorker(BareWorker):
    """Asks again where others were faster at every task that it was about to get."""

    async def claim(self) -> None:
        for _ in range(_MISSES):
            try:
                await super().claim()
            except VariantFailedError:
                continue
            return
        raise VariantFailedError(f"there was no task to claim in {_MISSES} attempts")


class Services:
    """So many processes of the service on one store; workers are spread over them.

    Args:
        store: `memory:`, `sqlite:` for a file of its own, or a new database of this kind.
    """

    operations: Sequence[str] = tuple(Operation)

    def __init__(self, name: str, store: str | DatabaseKind, *, replicas: int = 1) -> None:
        self.name = name
        self._store = store
        self._replicas = replicas
        self._database = Database(store) if isinstance(store, DatabaseKind) else None
        self._folder: TemporaryDirectory[str] | None = None
        self._children: list[Child] = []
        self._addresses: list[str] = []
        self._crew: Crew | None = None

    async def start(self) -> None:
        store = await self._url()
        for _ in range(self._replicas):
            child = Child("bench.durable.serving", "--store", store, placement=on_all_cores)
            self._children.append(child)
            # One after the other: the first one makes the tables.
            self._addresses.append(await child.start(_START_SECONDS))

    async def stop(self) -> None:
        await self.leave()
        for child in self._children:
            await child.stop()
        if self._database is not None:
            await self._database.stop()
        if self._folder is not None:
            self._folder.cleanup()

    async def enter(self, workers: int) -> None:
        self._crew = Crew(workers)
        self._crew.workers = [PatientWorker(number) for number in range(workers)]
        await self._crew.connect(*self._addresses)

    async def leave(self) -> None:
        crew, self._crew = self._crew, None
        if crew is not None:
            await crew.close()

    async def carry_out(self, operation: str, turns: int) -> Burst:
        assert self._crew is not None
        meter = SharesMeter(self.meter().pids, self._database.process_id if self._database else None)
        phase = await self._crew.carry_out(Operation(operation), turns, self)
        return Burst(phase.latencies_ms, meter.taken(len(phase.latencies_ms) / phase.rate))

    def meter(self) -> ServerMeter:
        """Starts counting what all its processes take."""
        return ServerMeter([pid for child in self._children for pid in child.meter().pids])

    async def _url(self) -> str:
        if self._database is not None:
            await self._database.start()
            return await self._database.create(_DATABASE)
        assert isinstance(self._store, str)
        if self._store == "sqlite:":
            self._folder = TemporaryDirectory(prefix="bench-databases-")
            return f"sqlite:///{self._folder.name}/tasks.db"
        return self._store


class BareLoop:
    """As many compare-and-sets at a time as there are workers, with no service around them."""

    operations: Sequence[str] = (BARE,)

    def __init__(self, name: str, kind: DatabaseKind) -> None:
        self.name = name
        self._kind = kind
        self._database = Database(kind)
        self._child: Child | None = None
        self._workers = 0

    async def start(self) -> None:
        await self._database.start()
        url = await self._database.create(_DATABASE)
        self._child = Child(self._kind.bare, url, placement=on_all_cores)
        await self._child.start(_START_SECONDS)

    async def stop(self) -> None:
        if self._child is not None:
            await self._child.stop()
        await self._database.stop()

    async def enter(self, workers: int) -> None:
        self._workers = workers

    async def leave(self) -> None:
        self._workers = 0

    async def carry_out(self, operation: str, turns: int) -> Burst:
        assert operation == BARE
        assert self._child is not None
        meter = SharesMeter(self._child.meter().pids, self._database.process_id)
        told = orjson.loads(await self._child.ask(f"{self._workers} {turns}"))
        return Burst(told["latencies"], meter.taken(told["elapsed"]))
