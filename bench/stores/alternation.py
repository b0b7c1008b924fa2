"""Measures several populations in turns, so that each figure has its counterpart a moment before or after."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from bench.interleaving import Progress, Ratio
from bench.quantiles import median, paired_ratios, quantile
from bench.stores.population import ROUTES, Operation, Population

# Jobs that are under way in a store in one round; each has a route of its own. Not more, so that also on a
# busy machine every job is sealed before the relay gives up waiting for that.
_JOBS = ROUTES // 8


@dataclass(slots=True)
class Samples:
    """One operation on one population.

    Attributes:
        latencies_ms: by round, one at a time.
        rates: by round, operations a second with several in flight.
        cpu_ms: by round, CPU an operation of the store's thread meanwhile.
    """

    latencies_ms: list[list[float]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Alternation:
    """What was measured, by population and operation."""

    samples: dict[tuple[int, Operation], Samples] = field(default_factory=dict)

    def of(self, queued: int, operation: Operation) -> Samples:
        return self.samples.setdefault((queued, operation), Samples())

    def ratio(self, operation: Operation, above: int, below: int) -> Ratio | None:
        """The median latency with so many queued, divided by that with fewer, in the same round."""
        tops, bottoms = (
            [median(latencies) for latencies in self.of(queued, operation).latencies_ms]
            for queued in (above, below)
        )
        return _ratio(tops, bottoms)

    def cpu_ratio(self, operation: Operation, above: int, below: int) -> Ratio | None:
        """The same of CPU an operation, which other processes on the machine change less."""
        return _ratio(self.of(above, operation).cpu_ms, self.of(below, operation).cpu_ms)


def _ratio(tops: Sequence[float], bottoms: Sequence[float]) -> Ratio | None:
    ratios = paired_ratios(tops, bottoms)
    if not ratios:
        return None
    return Ratio(quantile(ratios, 0.5), min(ratios), max(ratios), len(ratios))


async def alternate(
    populations: Sequence[Population], *, rounds: int, in_flight: int, random: Random, progress: Progress
) -> Alternation:
    """Takes jobs through their lives in all populations at once.

    In each round every operation is timed one at a time, its calls going from one population to the next in
    a shuffled order, and is then counted with several in flight, each population by itself.
    """
    found = Alternation()
    for number in range(1, rounds + 1):
        progress(f"round {number} of {rounds}")
        lanes = range((number - 1) * _JOBS, number * _JOBS)
        for operation in Operation:
            await _one_at_a_time(found, populations, operation, lanes, random)
        for operation in Operation:
            for population in random.sample(populations, len(populations)):
                samples, before = found.of(population.queued, operation), population.cpu_seconds()
                samples.rates.append(await population.steps(operation, lanes, in_flight))
                samples.cpu_ms.append((population.cpu_seconds() - before) * 1000 / len(lanes))
    return found


async def _one_at_a_time(
    found: Alternation,
    populations: Sequence[Population],
    operation: Operation,
    lanes: range,
    random: Random,
) -> None:
    latencies: dict[int, list[float]] = {population.queued: [] for population in populations}
    for lane in lanes:
        for population in random.sample(populations, len(populations)):
            latencies[population.queued].append(await population.step(operation, lane))
    for queued, timed in latencies.items():
        found.of(queued, operation).latencies_ms.append(timed)
