"""A circuit breaker per job: what failed here again and again is left to others."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

BEGINS: Final = 3
SPACING_SECONDS: Final = 30.0
MEMORY_SECONDS: Final = 600.0

# Almost every job is begun once; a device that does many a second need not remember them all.
_MOST_JOBS: Final = 10_000


@dataclass(slots=True)
class _Begins:
    last: float
    count: int = field(default=1)


class Breaker:
    """Counts how often each job of each site was begun.

    A job that comes back, because its lease was lost or its result was, is begun at most three times, at
    least thirty seconds apart. After that it is refused, until ten minutes have passed without it.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        *,
        begins: int = BEGINS,
        spacing_seconds: float = SPACING_SECONDS,
        memory_seconds: float = MEMORY_SECONDS,
    ) -> None:
        """Start without memory.

        Args:
            monotonic: Seconds since an arbitrary start.
            begins: How often a job may be begun.
            spacing_seconds: Least time from one begin to the next.
            memory_seconds: How long after its last begin a job is forgotten.
        """
        self._monotonic = monotonic
        self._most = begins
        self._spacing = spacing_seconds
        self._memory = memory_seconds
        # In the order of the last begin, so that what is forgotten is found at the front.
        self._jobs: OrderedDict[tuple[str, str], _Begins] = OrderedDict()

    def begin(self, site: str, job_id: str) -> float | None:
        """Count a begin.

        Returns:
            After how many seconds the job may run, 0 for at once; None when it must not be run any more.
        """
        now = self._monotonic()
        self._forget(now)
        known = self._jobs.get((site, job_id))
        if known is None:
            self._jobs[(site, job_id)] = _Begins(now)
            if len(self._jobs) > _MOST_JOBS:
                self._jobs.popitem(last=False)
            return 0.0
        if known.count >= self._most:
            return None
        wait = max(0.0, known.last + self._spacing - now)
        known.count += 1
        known.last = now + wait
        self._jobs.move_to_end((site, job_id))
        return wait

    def __len__(self) -> int:
        return len(self._jobs)

    def _forget(self, now: float) -> None:
        while self._jobs:
            oldest = next(iter(self._jobs))
            if self._jobs[oldest].last > now - self._memory:
                return
            del self._jobs[oldest]
