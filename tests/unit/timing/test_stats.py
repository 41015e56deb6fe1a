"""The plain statistics of one side."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.timing.stats import interquartile_range, median, median_interval, outliers

times = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50)


def test_the_middle_half():
    assert interquartile_range([5.0]) == 0.0
    assert interquartile_range([1.0, 3.0]) == 1.0
    assert interquartile_range([5.0, 1.0, 2.0, 3.0, 4.0]) == 2.0
    assert interquartile_range([1.0] * 3 + [1000.0]) == pytest.approx(249.75)


@given(values=times)
def test_the_middle_half_is_within_the_whole_and_does_not_move(values):
    width = interquartile_range(values)
    assert 0 <= width <= max(values) - min(values) + 1e-9
    assert interquartile_range(values[::-1]) == width
    assert interquartile_range([value * 2 for value in values]) == pytest.approx(2 * width)


@given(values=times)
def test_the_interval_holds_the_median(values):
    low, high = median_interval(values)
    assert low <= median(values) <= high


@pytest.mark.parametrize(
    ("values", "far"),
    [
        ([], []),
        ([1.0], []),
        ([1.0] * 30, []),
        ([1.0] * 30 + [1.009, 1.5], [1.5]),  # no spread at all: a hundredth tells
        ([1.0] * 12 + [8.0, 9.0] * 4, [8.0, 9.0] * 4),
        ([0.9, 1.0, 1.1] * 10 + [2.4, 0.1], []),  # ten standard deviations of 0.148 end at 2.48
        ([0.9, 1.0, 1.1] * 10 + [2.49, 9.0], [2.49, 9.0]),
        ([1.0] * 10 + [2.0] * 10, []),
    ],
)
def test_outliers_lie_ten_standard_deviations_off(values, far):
    assert outliers(values) == far


@given(values=times)
def test_outliers_are_a_minority_in_any_order_and_unit(values):
    far = outliers(values)
    assert len(far) < max(len(values) / 2, 1)
    assert sorted(outliers(values[::-1])) == sorted(far)
    assert outliers([value * 4 for value in values]) == [value * 4 for value in far]
