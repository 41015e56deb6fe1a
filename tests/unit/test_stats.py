"""The statistics of a grade, and when no speedup is quoted."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evaluator.findings import Code
from evaluator.timing.stats import interquartile_range, median, quote
from tests.cards import samples

times = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50)


def side(*samples_ms, overhead_ms=0.02, overhead_iqr_ms=0.001):
    values = list(samples_ms)
    return replace(
        samples("side", 1.0),
        samples_ms=values,
        median_ms=median(values),
        overhead_ms=overhead_ms,
        overhead_iqr_ms=overhead_iqr_ms,
    )


def codes(said):
    return [found.code for found in said.findings]


def test_medians():
    assert median([3.0]) == 3.0
    assert median([4.0, 1.0, 2.0, 100.0]) == 3.0


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


def test_an_honest_pair_is_quoted_without_a_remark():
    said = quote(side(2.0, 2.1, 1.9), side(1.0, 1.1, 0.9), side(2.0, 2.0, 2.0))
    assert said.reference_median_ms == 2.0
    assert said.submission_median_ms == 1.0
    assert said.speedup == 2.0
    assert said.resolution_ms == 0.001
    assert said.findings == []


@given(before=times, submission=times, after=times)
def test_both_halves_of_the_reference_count_alike(before, submission, after):
    said = quote(side(*before), side(*submission), side(*after))
    assert said.reference_median_ms == statistics.median(before + after)
    assert said.speedup is None or said.speedup == said.reference_median_ms / said.submission_median_ms
    assert (said.speedup is None) == (Code.BELOW_RESOLUTION.value in codes(said))
    swapped = quote(side(*after), side(*submission), side(*before))
    assert (swapped.speedup, codes(swapped)) == (said.speedup, codes(said))


@pytest.mark.parametrize(("after_ms", "drifted"), [(1.05, False), (1.12, True), (0.95, False), (0.88, True)])
def test_a_reference_that_drifts_is_told_and_still_quoted(after_ms, drifted):
    said = quote(side(1.0, 1.0), side(1.0), side(after_ms, after_ms))
    assert (Code.REFERENCE_DRIFTED.value in codes(said)) == drifted
    assert said.speedup is not None


@pytest.mark.parametrize("worst", [0, 1, 2])
def test_the_worst_spread_of_the_three_is_the_resolution(worst):
    spreads = [0.001] * 3
    spreads[worst] = 0.01
    said = quote(*(side(1.0, overhead_iqr_ms=spread) for spread in spreads))
    assert said.resolution_ms == 0.01


def test_a_machine_that_is_not_quiet_is_told():
    loud = side(10.0, overhead_ms=0.02, overhead_iqr_ms=0.03)
    quiet = side(10.0)
    assert codes(quote(loud, quiet, quiet)) == [Code.NOT_QUIET.value]
    assert codes(quote(quiet, quiet, quiet)) == []


@pytest.mark.parametrize(("reference_ms", "submission_ms"), [(1.0, 0.004), (0.004, 1.0), (0.004, 0.004)])
def test_what_is_too_near_the_resolution_has_no_speedup(reference_ms, submission_ms):
    said = quote(side(reference_ms), side(submission_ms), side(reference_ms))
    assert said.speedup is None
    assert codes(said) == [Code.BELOW_RESOLUTION.value]


def test_a_submission_that_takes_no_time_has_no_speedup_even_on_a_perfect_clock():
    perfect = {"overhead_iqr_ms": 0.0}
    said = quote(side(1.0, **perfect), side(0.0, **perfect), side(1.0, **perfect))
    assert said.speedup is None
    assert codes(said) == [Code.BELOW_RESOLUTION.value]
