"""The figures of a burst that comparisons are made of."""

from collections.abc import Callable

from bench.quantiles import quantile
from bench.variant import BurstResult

Figure = Callable[[BurstResult], float]


def rate(burst: BurstResult) -> float:
    """Operations a second."""
    return burst.rate


def cpu_ms(burst: BurstResult) -> float:
    """Milliseconds of server CPU an operation."""
    return burst.cpu_ms


def cores(burst: BurstResult) -> float:
    """Server CPU as a share of one core: the figure for loads that keep their own pace."""
    return burst.cores


def latency_ms(share: float) -> Figure:
    """The latency that this share of a burst's operations stayed below, in milliseconds."""

    def figure(burst: BurstResult) -> float:
        return quantile(burst.latencies_ms, share)

    return figure
