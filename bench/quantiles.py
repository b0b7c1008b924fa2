"""Order statistics over measured figures."""

from collections.abc import Iterable, Sequence
from math import floor, inf


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which this share of the figures lies, interpolated between neighbours.

    Args:
        share: from 0 (the least) to 1 (the greatest).

    Returns:
        NaN when there are no figures.
    """
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    position = share * (len(ordered) - 1)
    low = floor(position)
    if low + 1 >= len(ordered) or ordered[low] == ordered[low + 1]:
        return ordered[low]
    return ordered[low] + (ordered[low + 1] - ordered[low]) * (position - low)


def median(values: Iterable[float]) -> float:
    """The middle figure, or the mean of the middle two; NaN when there are none."""
    return quantile(values, 0.5)


def paired_ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Ratios of figures taken side by side.

    A pair with a zero, infinite or missing member says nothing about a ratio and is left out.
    """
    pairs = zip(numerators, denominators, strict=True)
    return [above / below for above, below in pairs if 0 < above < inf and 0 < below < inf]
