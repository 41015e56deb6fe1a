"""The weighted geometric mean of cases, and its interval."""

import math

import pytest

from evaluator.records import CaseResult, Status
from evaluator.timing.quote import score_of


def case(name, ratio, error=0.02, weight=1.0, **others):
    """A timed case whose interval is `error` wide on either side, in the logarithm."""
    low, high = ratio * math.exp(-error), ratio * math.exp(error)
    made = CaseResult(name, {}, weight, Status.CORRECT, None, None, ratio, low, high, 1.0, ratio)
    return CaseResult(**{each: getattr(made, each) for each in made.__struct_fields__} | others)


def test_it_is_the_weighted_geometric_mean():
    score = score_of([case("a", 8.0), case("b", 0.5, weight=3.0)])
    assert score.speedup == pytest.approx(8.0**0.25 * 0.5**0.75)
    assert (score.cases, score.weight) == (2, 1.0)


def test_independent_cases_make_the_interval_narrower():
    score = score_of([case(str(number), 2.0, error=0.06) for number in range(16)])
    assert score.speedup_low == pytest.approx(2 * math.exp(-0.06 / 4))
    assert score.speedup_high == pytest.approx(2 * math.exp(0.06 / 4))


def test_an_interval_need_not_be_symmetric():
    score = score_of([case("a", 2.0, speedup_high=2.0), case("b", 2.0, speedup_high=2.0)])
    assert score.speedup_high == pytest.approx(2.0)
    assert score.speedup_low == pytest.approx(2 * math.exp(-0.02 / math.sqrt(2)))


def test_a_side_without_an_end_leaves_the_score_without_one():
    score = score_of([case("a", 2.0), case("b", 2.0, speedup=None, speedup_high=None)])
    assert (score.speedup, score.speedup_high) == (None, None)
    assert score.speedup_low == pytest.approx(2 * math.exp(-0.02 / math.sqrt(2)))


def test_cases_left_out_count_as_weight_without_a_score():
    left_out = CaseResult("c", {}, 2.0, None, message="the budget was spent")
    assert score_of([case("a", 2.0), case("b", 2.0), left_out]).weight == 0.5
    hidden = case("hidden_1", 100.0, hidden=True)
    assert score_of([case("a", 2.0), case("b", 2.0), hidden]).speedup == pytest.approx(2.0)


@pytest.mark.parametrize(
    "other",
    [
        case("b", 2.0, median_ms=None),
        case("b", 2.0, speedup_low=None),
        case("b", 2.0, median_ms=0.0),
        case("b", 2.0, median_ms=-1.0),
        case("b", 2.0, median_ms=5e-324, reference_median_ms=1e300),
    ],
)
def test_without_two_times_there_is_none(other):
    assert score_of([case("a", 2.0), other]) is None


def test_weights_of_any_size_are_added():
    score = score_of([case("a", 2.0, weight=5e-324), case("b", 4.0, weight=1e12)])
    assert score.speedup == pytest.approx(4.0)
