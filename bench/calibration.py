"""How steady this machine is: a fixed piece of work, timed again and again during a run."""

from dataclasses import dataclass, field
from hashlib import sha256
from time import perf_counter

from bench.quantiles import median, quantile

_BLOCK = bytes(65536)
_BLOCKS = 200


def fixed_work_ms() -> float:
    """Milliseconds that hashing a fixed 12.5 MiB takes now, on the core of the caller."""
    started = perf_counter()
    for _ in range(_BLOCKS):
        sha256(_BLOCK).digest()
    return (perf_counter() - started) * 1000


@dataclass(slots=True)
class Steadiness:
    """Timings of the fixed work; their spread tells how far absolute figures can be trusted."""

    timings_ms: list[float] = field(default_factory=list)

    def sample(self) -> None:
        self.timings_ms.append(fixed_work_ms())

    @property
    def spread(self) -> float:
        """Half the range of the middle 80 % of the timings, as a share of their median."""
        if not self.timings_ms:
            return 0.0
        middle = quantile(self.timings_ms, 0.9) - quantile(self.timings_ms, 0.1)
        return middle / 2 / median(self.timings_ms)
