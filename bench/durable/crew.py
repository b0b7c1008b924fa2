"""Workers that take tasks through their lives, all in step."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from time import perf_counter
from typing import Protocol

from bench.durable.bare_worker import BareWorker
from bench.process_stats import ServerMeter
from bench.variant import VariantFailedError
from durable_service.client.errors import DurableError
from service_common.session_client import SessionLost

# A stream that is lost leaves its calls without answers.
_PATIENCE_SECONDS = 60.0


class Operation(StrEnum):
    """What is measured, in the order in which it happens to a task.

    The last is a whole life by itself: submitted, claimed and completed.
    """

    CREATE = "create"
    CLAIM = "claim"
    RENEW = "renew"
    EVENT = "event"
    COMPLETE = "complete"
    LIFECYCLE = "lifecycle"


@dataclass(frozen=True, slots=True)
class Phase:
    """One operation, carried out so many times.

    Attributes:
        latencies_ms: one figure an operation.
        cpu_ms: server CPU an operation.
    """

    latencies_ms: Sequence[float]
    rate: float
    cpu_ms: float


class Metered(Protocol):
    """A service whose CPU can be counted."""

    def meter(self) -> ServerMeter:
        """Starts counting what it takes."""
        ...


class Crew:
    """So many workers of one service, each with one operation under way at a time."""

    def __init__(self, workers: int) -> None:
        self.workers = [BareWorker(number) for number in range(workers)]
        self._steps: Mapping[Operation, Callable[[BareWorker, int], Awaitable[None]]] = {
            Operation.CREATE: lambda worker, _turn: worker.create(),
            Operation.CLAIM: lambda worker, _turn: worker.claim(),
            Operation.RENEW: lambda worker, turn: worker.renew(worker.leases[turn]),
            Operation.EVENT: lambda worker, turn: worker.append(worker.leases[turn]),
            Operation.COMPLETE: lambda worker, _turn: worker.complete(worker.leases.pop()),
            Operation.LIFECYCLE: lambda worker, _turn: _lifecycle(worker),
        }

    async def connect(self, *addresses: str) -> None:
        """Opens every stream, as many at each address."""
        for worker, address in zip(self.workers, cycle(addresses), strict=False):
            await worker.connect(address)

    async def close(self) -> None:
        """Closes every stream."""
        await asyncio.gather(*(worker.close() for worker in self.workers))

    async def carry_out(self, operation: Operation, turns: int, server: Metered) -> Phase:
        """Lets each worker do this so many times, one after the other; all of them side by side.

        Raises:
            VariantFailedError: something was refused or not answered.
        """
        meter, started = server.meter(), perf_counter()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                lanes = (self._in_turn(worker, operation, turns) for worker in self.workers)
                latencies = [each for lane in await asyncio.gather(*lanes) for each in lane]
        except (DurableError, SessionLost, TimeoutError) as error:
            raise VariantFailedError(f"{operation} failed: {error!r}") from error
        elapsed = perf_counter() - started
        return Phase(latencies, len(latencies) / elapsed, meter.cpu_seconds() * 1000 / len(latencies))

    async def _in_turn(self, worker: BareWorker, operation: Operation, turns: int) -> list[float]:
        step, latencies = self._steps[operation], []
        for turn in range(turns):
            started = perf_counter()
            await step(worker, turn)
            latencies.append((perf_counter() - started) * 1000)
        return latencies


async def _lifecycle(worker: BareWorker) -> None:
    await worker.create()
    await worker.claim()
    await worker.complete(worker.leases.pop())
