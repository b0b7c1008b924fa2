"""Measures services in turns, so that each figure has its counterpart a moment before or after."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random

from bench.durable.crew import Crew, Operation, Phase
from bench.durable.server import DurableProcess
from bench.interleaving import Progress, Ratio
from bench.operation_costs import OperationCost, operation_cost
from bench.quantiles import median, paired_ratios, quantile


@dataclass(frozen=True, slots=True)
class Service:
    """A service that is up, by what is compared.

    Attributes:
        tasks: how many tasks were in its store at the beginning.
    """

    store: str
    tasks: int
    server: DurableProcess


Place = tuple[str, int, int, Operation]


@dataclass(slots=True)
class Alternation:
    """What was measured, by store, tasks at the beginning, workers and operation; a phase for each round."""

    phases: dict[Place, list[Phase]] = field(default_factory=dict)

    def add(self, place: Place, phase: Phase) -> None:
        self.phases.setdefault(place, []).append(phase)

    def cost(self, place: Place) -> OperationCost:
        """The figures of one operation."""
        _store, tasks, workers, operation = place
        phases = self.phases[place]
        latencies = [each for phase in phases for each in phase.latencies_ms]
        return operation_cost(
            tasks,
            f"{operation}, {workers} {'worker' if workers == 1 else 'workers'}",
            latencies,
            [phase.rate for phase in phases],
            [phase.cpu_ms for phase in phases],
        )

    def growth(self, store: str, workers: int, operation: Operation, many: int) -> Ratio | None:
        """How many times as long an operation takes with many tasks as with none, in the same round."""
        few, much = (
            [median(phase.latencies_ms) for phase in self.phases.get((store, tasks, workers, operation), ())]
            for tasks in (0, many)
        )
        ratios = paired_ratios(much, few)
        return Ratio(quantile(ratios, 0.5), min(ratios), max(ratios), len(ratios)) if ratios else None


async def alternate(
    services: Sequence[Service],
    *,
    crews: Sequence[int],
    rounds: int,
    operations: int,
    random: Random,
    progress: Progress,
) -> Alternation:
    """Takes tasks through their lives in all services, each operation in one after the other.

    Args:
        crews: numbers of workers; one number after the other.
        operations: of each kind in a round; a crew that is larger does one for each of its workers.

    Raises:
        VariantFailedError: something was refused or not answered.
    """
    found = Alternation()
    for workers in crews:
        async with AsyncExitStack() as connected:
            manned = [(service, await _connected(service, workers, connected)) for service in services]
            turns = max(1, operations // workers)
            for number in range(rounds + 1):
                progress(f"{workers} workers, round {number} of {rounds}")
                for operation in Operation:
                    for service, crew in random.sample(manned, len(manned)):
                        phase = await crew.carry_out(operation, turns, service.server)
                        # The first round warms connections, caches and allocators up.
                        if number:
                            found.add((service.store, service.tasks, workers, operation), phase)
    return found


async def _connected(service: Service, workers: int, connected: AsyncExitStack) -> Crew:
    crew = Crew(workers)
    connected.push_async_callback(crew.close)
    await crew.connect(service.server.address)
    return crew
