from math import inf, isnan, nan

import pytest

from bench.quantiles import median, paired_ratios, quantile


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 10.0), (0.25, 20.0), (0.5, 30.0), (0.9, 46.0), (1.0, 50.0)]
)
def test_quantile_interpolates_between_neighbours(share: float, expected: float) -> None:
    assert quantile([50.0, 10.0, 40.0, 20.0, 30.0], share) == pytest.approx(expected)


def test_quantile_of_one_figure_is_that_figure() -> None:
    assert quantile([7.0], 0.99) == 7.0


def test_quantile_of_nothing_does_not_exist() -> None:
    assert isnan(quantile([], 0.5))


def test_quantile_survives_infinite_figures() -> None:
    assert quantile([1.0, inf, inf], 0.5) == inf


def test_median_of_an_even_number_is_the_mean_of_the_middle_two() -> None:
    assert median([1.0, 100.0, 2.0, 4.0]) == 3.0


def test_paired_ratios_divide_pair_by_pair() -> None:
    assert paired_ratios([6.0, 8.0], [2.0, 16.0]) == [3.0, 0.5]


@pytest.mark.parametrize("useless", [(0.0, 1.0), (1.0, 0.0), (inf, 1.0), (1.0, inf), (nan, 1.0), (1.0, nan)])
def test_a_pair_without_meaning_is_left_out(useless: tuple[float, float]) -> None:
    assert paired_ratios([useless[0], 4.0], [useless[1], 2.0]) == [2.0]


def test_figures_without_partners_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired_ratios([1.0, 2.0], [1.0])
