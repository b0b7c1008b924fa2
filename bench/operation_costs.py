"""What single operations cost, by how much there is beside what they touch."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.quantiles import median, quantile


@dataclass(frozen=True, slots=True)
class OperationCost:
    """One operation with so many jobs queued.

    Latencies are of operations one at a time; rate and CPU are medians of bursts with several in flight.
    """

    queued: int
    operation: str
    samples: int
    rate: float
    cpu_ms: float
    p50_ms: float
    p99_ms: float
    longest_ms: float


def operation_cost(
    queued: int,
    operation: str,
    latencies_ms: Sequence[float],
    rates: Sequence[float],
    cpu_ms: Sequence[float],
) -> OperationCost:
    """The figures of one operation."""
    return OperationCost(
        queued,
        operation,
        len(latencies_ms),
        median(rates),
        median(cpu_ms),
        quantile(latencies_ms, 0.5),
        quantile(latencies_ms, 0.99),
        max(latencies_ms, default=float("nan")),
    )
