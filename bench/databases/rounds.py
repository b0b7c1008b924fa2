"""Measures contestants in turns, so that each figure has its counterparts a moment before or after."""

from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from bench.databases.contestants import Burst, Contestant
from bench.durable.crew import Operation
from bench.interleaving import Progress, Ratio
from bench.quantiles import paired_ratios, quantile
from bench.variant import VariantFailedError, VariantUnavailableError

# The round before the first warms connections, caches and allocators up, with so much less to do. It has no
# lifecycles, which are made of operations that are warm by then.
_WARM_UP = 4

Done = TypeVar("Done")
Place = tuple[str, int, str]


@dataclass(slots=True)
class Rounds:
    """What was measured, by contestant, workers and operation; a burst for each round that it took part in.

    Attributes:
        absent: why a contestant is missing, or was for the rest.
    """

    bursts: dict[Place, dict[int, Burst]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def add(self, place: Place, number: int, burst: Burst) -> None:
        self.bursts.setdefault(place, {})[number] = burst

    def ratio(self, above: Place, below: Place) -> Ratio | None:
        """Operations a second of one divided by those of the other, in the same round."""
        tops, bottoms = self.bursts.get(above, {}), self.bursts.get(below, {})
        met = sorted(tops.keys() & bottoms.keys())
        ratios = paired_ratios([tops[each].rate for each in met], [bottoms[each].rate for each in met])
        return Ratio(quantile(ratios, 0.5), min(ratios), max(ratios), len(ratios)) if ratios else None


async def measure_in_turns(
    contestants: Sequence[Contestant],
    *,
    crews: Sequence[int],
    rounds: int,
    operations: int,
    random: Random,
    progress: Progress,
) -> Rounds:
    """Starts all of them, lets each do every operation in each round, and stops them.

    One that cannot start, or breaks down, is left out from then on, and the others go on.

    Args:
        operations: of each kind in a round; as many as there are workers where those are more.
    """
    turns = _Turns(rounds, operations, random, progress)
    async with AsyncExitStack() as started:
        for contestant in contestants:
            progress(f"starting {contestant.name}")
            # Registered first: a start that fails half way has left something behind.
            started.push_async_callback(contestant.stop)
            turns.running.append(contestant)
            await turns.attempt(contestant, contestant.start(), "")
        for workers in crews:
            await turns.take(workers)
    return turns.found


class _Turns:
    """Those that are up, and what they have done."""

    def __init__(self, rounds: int, operations: int, random: Random, progress: Progress) -> None:
        self.found = Rounds()
        self.running: list[Contestant] = []
        self._rounds = rounds
        self._operations = operations
        self._random = random
        self._progress = progress

    async def attempt(self, contestant: Contestant, work: Awaitable[Done], broke_down: str) -> Done | None:
        """What came of it; None when it failed, and then the contestant is out."""
        try:
            return await work
        except (VariantUnavailableError, VariantFailedError, OSError) as failure:
            self.found.absent[contestant.name] = broke_down + (str(failure) or type(failure).__name__)
            self.running.remove(contestant)
            return None

    async def take(self, workers: int) -> None:
        """All rounds with so many workers."""
        for contestant in list(self.running):
            await self.attempt(contestant, contestant.enter(workers), "workers could not connect: ")
        turns = max(1, self._operations // workers)
        # With more workers than operations it would take as long as a round, and each of them waits much
        # longer for all the others than for its own connection.
        first = 0 if workers <= self._operations else 1
        for number in range(first, self._rounds + 1):
            await self._round(workers, number, turns if number else max(1, turns // _WARM_UP))
        for contestant in self.running:
            await contestant.leave()

    async def _round(self, workers: int, number: int, turns: int) -> None:
        operations = dict.fromkeys(each for contestant in self.running for each in contestant.operations)
        if not number:
            operations.pop(Operation.LIFECYCLE, None)
        for operation in operations:
            self._progress(f"{workers} workers, round {number} of {self._rounds}, {operation}")
            for contestant in self._random.sample(self.running, len(self.running)):
                if operation in contestant.operations:
                    work = contestant.carry_out(operation, turns)
                    burst = await self.attempt(contestant, work, f"broke down at {operation}: ")
                    if burst is not None and number:
                        self.found.add((contestant.name, workers, operation), number, burst)
