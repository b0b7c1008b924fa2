"""Runs variants side by side in short bursts, in shuffled order.

The speed of a shared machine drifts by a quarter within seconds. Two figures taken minutes apart therefore
compare the machine with itself; two taken in the same round compare what was meant to be compared. All
variants are up at once, each round gives each of them one burst, and a comparison is the median of the
rounds' ratios.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random

from bench.figures import Figure
from bench.quantiles import paired_ratios, quantile
from bench.variant import BurstResult, Variant, VariantFailedError, VariantUnavailableError

Progress = Callable[[str], None]
# A variant that hangs must not hang the run.
_START_SECONDS = 120.0
_OVERRUN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """A comparison: the median of paired ratios, their extremes, and how many pairs there were."""

    median: float
    low: float
    high: float
    pairs: int


@dataclass(slots=True)
class InterleavedRun:
    """Bursts by round, and for each variant that is missing the reason."""

    rounds: list[dict[str, BurstResult]] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    def bursts(self, name: str) -> list[BurstResult]:
        """Every burst of one variant, in the order of the rounds."""
        return [bursts[name] for bursts in self.rounds if name in bursts]

    def ratio(self, above: str, below: str, figure: Figure) -> Ratio | None:
        """One variant's figure divided by another's, paired by round; None when they never met in one."""
        met = [bursts for bursts in self.rounds if above in bursts and below in bursts]
        ratios = paired_ratios([figure(b[above]) for b in met], [figure(b[below]) for b in met])
        if not ratios:
            return None
        return Ratio(quantile(ratios, 0.5), min(ratios), max(ratios), len(ratios))


async def run_interleaved(
    variants: Sequence[Variant],
    *,
    rounds: int,
    burst_seconds: float,
    random: Random,
    progress: Progress = lambda _line: None,
) -> InterleavedRun:
    """Starts every variant, gives each one burst a round in a new order each time, and stops them all.

    A variant that cannot start, or breaks down, is left out from then on and the run goes on without it.
    """
    run = InterleavedRun()
    async with AsyncExitStack() as started:
        running = [variant for variant in variants if await _starts(variant, run, started, progress)]
        for number in range(1, rounds + 1):
            bursts: dict[str, BurstResult] = {}
            for variant in random.sample(running, len(running)):
                progress(f"round {number} of {rounds}: {variant.name}")
                try:
                    bursts[variant.name] = await _bounded_burst(variant, burst_seconds)
                except (VariantFailedError, OSError) as failure:
                    run.absent[variant.name] = f"broke down in round {number}: {_words(failure)}"
                    running.remove(variant)
            run.rounds.append(bursts)
    return run


async def _starts(variant: Variant, run: InterleavedRun, started: AsyncExitStack, progress: Progress) -> bool:
    progress(f"starting {variant.name}")
    # Registered first: a start that fails half way has left something behind that must be taken down.
    started.push_async_callback(variant.stop)
    try:
        async with asyncio.timeout(_START_SECONDS):
            await variant.start()
    except (VariantUnavailableError, VariantFailedError, OSError) as failure:
        run.absent[variant.name] = _words(failure)
        return False
    return True


async def _bounded_burst(variant: Variant, seconds: float) -> BurstResult:
    async with asyncio.timeout(seconds + _OVERRUN_SECONDS):
        return await variant.burst(seconds)


def _words(failure: Exception) -> str:
    if isinstance(failure, TimeoutError):
        return "it took too long"
    return str(failure) or type(failure).__name__
