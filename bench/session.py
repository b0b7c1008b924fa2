"""One sitting at the bench: runs variants, shows what is under way, and watches how steady the machine is."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from time import monotonic

from rich.console import Console

from bench.calibration import Steadiness
from bench.interleaving import InterleavedRun, Progress, run_interleaved
from bench.report import Section
from bench.variant import Variant

# Lines that cannot be overwritten stay: one of them this often is enough.
_LINE_SECONDS = 15.0


class Session:
    """What the workloads of one report share."""

    def __init__(self, console: Console, seed: int = 7) -> None:
        self.steadiness = Steadiness()
        self._console = console
        self.random = Random(seed)
        self._started = monotonic()
        self._next_line_at = self._started

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Shows what is under way, as it is told of it.

        Where the tables do not go to a terminal, a line on standard error now and then is all.
        """
        with self._shown() as show:

            def progress(line: str) -> None:
                self.steadiness.sample()
                show(line)

            yield progress

    @contextmanager
    def _shown(self) -> Iterator[Progress]:
        if not self._console.is_terminal:
            yield self._say_now_and_then
            return
        with self._console.status("") as status:
            yield status.update

    def _say_now_and_then(self, line: str) -> None:
        now = monotonic()
        if now >= self._next_line_at:
            self._next_line_at = now + _LINE_SECONDS
            # Made anew each time: it is for whatever standard error is by then.
            Console(stderr=True).print(f"{now - self._started:,.0f} s: {line}", markup=False, highlight=False)

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
