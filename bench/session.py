"""One sitting at the bench: runs variants, shows what is under way, and watches how steady the machine is."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

from rich.console import Console

from bench.calibration import Steadiness
from bench.interleaving import InterleavedRun, Progress, run_interleaved
from bench.report import Section
from bench.variant import Variant


class Session:
    """What the workloads of one report share."""

    def __init__(self, console: Console, seed: int = 7) -> None:
        self.steadiness = Steadiness()
        self._console = console
        self.random = Random(seed)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Shows what is under way, as it is told of it."""
        with self._console.status("") as status:

            def progress(line: str) -> None:
                self.steadiness.sample()
                status.update(line)

            yield progress

    async def run(self, variants: Sequence[Variant], *, rounds: int, seconds: float) -> InterleavedRun:
        """Runs these variants against each other, each one burst of so many seconds a round."""
        with self.progress() as progress:
            return await run_interleaved(
                variants, rounds=rounds, burst_seconds=seconds, random=self.random, progress=progress
            )

    async def measure(
        self, section: Section, variants: Sequence[Variant], *, rounds: int, seconds: float
    ) -> InterleavedRun:
        """As run; the figures of every variant go into the section, in the order given."""
        run = await self.run(variants, rounds=rounds, seconds=seconds)
        section.add(run, [variant.name for variant in variants])
        return run
