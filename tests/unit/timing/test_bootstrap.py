"""The intervals: they hold the truth about as often as they say, and depend on nothing but the samples."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.timing.stats import DRAWS, Bootstrap, Interval, Resolution, _seed

times = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=40)

TRUE = 1.25
EXACT = Resolution(0.0, 0.0)
NARROW = Resolution(0.01, 0.01)
SAMPLES = {
    "normal": lambda draw: draw.gauss(1, 0.02),
    "lognormal": lambda draw: draw.lognormvariate(0, 0.05),
    "one-sided": lambda draw: 1 + draw.expovariate(20),
    "bimodal": lambda draw: draw.gauss(1, 0.01) + (0.2 if draw.random() < 0.2 else 0),
}


@pytest.mark.parametrize("shape", SAMPLES)
@pytest.mark.slow
def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says(shape):
    """95 % at least, and not always: intervals over clusters held it in 96 to 99 of 100 when 400 were drawn."""
    draw, one = random.Random(7), SAMPLES[shape]
    held = 0
    for _ in range(60):
        runs = [[TRUE * one(draw) for _ in range(50)] for _ in range(2)]
        interval = Bootstrap(runs, [one(draw) for _ in range(50)]).speedup(EXACT)
        held += interval.low <= TRUE <= interval.high
    assert 56 <= held < 60


def test_it_is_no_wider_than_it_must_be():
    """The median of n normal samples is known to 1.253 sigma / sqrt(n); three such medians make the ratio."""
    draw = random.Random(3)
    widths = []
    for _ in range(20):
        runs = [[draw.gauss(1, 0.01) for _ in range(100)] for _ in range(2)]
        widths.append(Bootstrap(runs, [draw.gauss(1, 0.01) for _ in range(100)]).speedup(EXACT).width_of(1.0))
    theory = 2 * 1.96 * 1.253 * 0.01 / math.sqrt(100) * math.sqrt(1.5)
    assert theory * 0.8 < sum(widths) / len(widths) < theory * 1.5


@settings(max_examples=25, deadline=None)
@given(before=times, after=times, submission=times, seed=st.randoms(use_true_random=False))
def test_order_does_not_matter(before, after, submission, seed):
    first = Bootstrap([before, after], submission)
    shuffled = [seed.sample(side, len(side)) for side in (after, before, submission)]
    again = Bootstrap(shuffled[:2], shuffled[2])
    assert again.speedup(Resolution(0.01, 0.01)) == first.speedup(Resolution(0.01, 0.01))
    assert again.reference_ms(NARROW) == first.reference_ms(NARROW)


@settings(max_examples=25, deadline=None)
@given(before=times, after=times, submission=times, power=st.integers(-20, 20))
def test_the_unit_does_not_matter(before, after, submission, power):
    """Powers of two, which floating-point numbers are scaled by without rounding."""
    scale = 2.0**power
    first = Bootstrap([before, after], submission)
    scaled = Bootstrap([[x * scale for x in before], [x * scale for x in after]], [x * scale for x in submission])
    assert scaled.speedup(Resolution(0.01 * scale, 0.01 * scale)) == first.speedup(Resolution(0.01, 0.01))
    low, high = first.submission_ms(NARROW)
    assert scaled.submission_ms(NARROW.finer(1 / scale)) == (low * scale, high * scale)


@settings(max_examples=25, deadline=None)
@given(before=times, after=times, submission=times)
def test_the_intervals_lie_within_what_was_seen(before, after, submission):
    draws = Bootstrap([before, after], submission)
    assert min(before + after) <= draws.reference_ms(EXACT).low <= draws.reference_ms(EXACT).high <= max(before + after)
    assert min(submission) <= draws.submission_ms(EXACT).low <= draws.submission_ms(EXACT).high <= max(submission)


@pytest.mark.parametrize("count", [1, 2, 5, 20, 21])
def test_a_drawn_median_is_that_of_samples_drawn_with_replacement(count):
    """Held against the long way: draw n of n with replacement, and take the middle."""
    draw = random.Random(11)
    values = sorted(draw.lognormvariate(0, 0.5) for _ in range(count))
    long = sorted(_middle(sorted(draw.choices(values, k=count))) for _ in range(20_000))
    short = Bootstrap([values], values).submission_ms(EXACT)
    for quantile, end in ((0.025, short.low), (0.975, short.high)):
        least, most = (long[round(20_000 * (quantile + step))] for step in (-0.008, 0.008))
        assert least <= end <= most


@pytest.mark.parametrize(("before", "after", "submission"), [(1, 1, 1), (2, 3, 2), (20, 20, 21), (336, 179, 227)])
def test_the_random_numbers_are_those_of_pythons_distributions(before, after, submission):
    """Finished cards hold intervals from these numbers, and check-card computes the intervals again."""
    draw = random.Random(before)
    sides = [[draw.lognormvariate(0, 0.1) for _ in range(count)] for count in (before, after, submission)]
    runs, ordered = sorted(map(sorted, sides[:2])), sorted(sides[2])
    generator = random.Random(_seed([*runs, ordered]))
    ratios = []
    for _ in range(DRAWS):
        pool = sorted(generator.choice(runs) + generator.choice(runs))
        reference, taken = (_by_python(each, generator) for each in (pool, ordered))
        reference += generator.uniform(-1, 1) * 0.02
        ratios.append(reference / (taken + generator.uniform(-1, 1) * 0.01))
    ratios.sort()
    assert Bootstrap(sides[:2], sides[2]).speedup(Resolution(0.02, 0.01)) == (ratios[100], ratios[-101])


def _by_python(ordered, generator):
    count = len(ordered)
    rank = (count + 1) // 2
    place = generator.betavariate(rank, count + 1 - rank)
    lower = ordered[int(place * count)]
    if count % 2:
        return lower
    place += (1 - place) * generator.betavariate(1, count - rank)
    return (lower + ordered[int(place * count)]) / 2


def _middle(values):
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def test_what_differs_between_runs_is_in_the_interval():
    """Two runs of the reference that agree with themselves and not with each other."""
    apart = Bootstrap([[1.0] * 20, [1.1] * 20], [1.0] * 20).speedup(EXACT)
    assert apart == (1.0, 1.1)
    assert not apart.excludes_one


def test_the_resolution_is_in_the_interval():
    """Two rectangular errors of 0.01 make a triangle, of which 95 % lie within 0.0155."""
    sides = [[1.0] * 20, [1.0] * 20], [1.0] * 20
    assert Bootstrap(*sides).speedup(EXACT) == (1.0, 1.0)
    interval = Bootstrap(*sides).speedup(Resolution(0.01, 0.01))
    assert interval.low == pytest.approx(1 - 0.0155, abs=0.001)
    assert interval.high == pytest.approx(1 + 0.0155, abs=0.001)
    assert Bootstrap(*sides).reference_ms(NARROW).low == pytest.approx(0.9905, abs=0.0005)


def test_each_side_has_its_own_resolution():
    """A rectangular error of one side: 95 % of it lie within 0.95 of its limit."""
    draws = Bootstrap([[1.0] * 20, [1.0] * 20], [1.0] * 20)
    assert draws.speedup(Resolution(0.01, 0.0)).high == pytest.approx(1.0095, abs=0.0005)
    assert draws.speedup(Resolution(0.0, 0.01)).high == pytest.approx(1 / (1 - 0.0095), abs=0.0005)


def test_the_spread_between_processes_is_in_the_interval():
    """A normal error of 0.01 for the submission, of 0.01 / sqrt(2) for the mean of the reference's two processes."""
    draws = Bootstrap([[1.0] * 20] * 2, [1.0] * 20)
    spread = Resolution(0.0, 0.0, 0.01, 0.01)
    assert draws.submission_ms(spread) == pytest.approx((1 - 0.0196, 1 + 0.0196), abs=0.001)
    assert draws.reference_ms(spread) == pytest.approx((1 - 0.0139, 1 + 0.0139), abs=0.001)
    half = 0.0196 * math.sqrt(1.5)
    assert draws.speedup(spread) == pytest.approx((1 - half, 1 + half), abs=0.0015)
    one_process = Bootstrap([[1.0] * 20], [1.0] * 20)
    assert one_process.reference_ms(spread) == pytest.approx((1 - 0.0196, 1 + 0.0196), abs=0.001)


def test_a_submission_that_may_take_no_time_has_no_upper_end():
    interval = Bootstrap([[1.0] * 20] * 2, [0.001] * 20).speedup(Resolution(0.01, 0.01))
    assert interval.low > 50
    assert math.isinf(interval.high)
    assert interval.excludes_one
    assert Bootstrap([[0.0] * 20] * 2, [0.0] * 20).speedup(EXACT) == (math.inf, math.inf)


@pytest.mark.parametrize(
    ("low", "high", "excluded"), [(0.9, 1.1, False), (1.0, 1.1, False), (1.01, 1.1, True), (0.9, 0.99, True)]
)
def test_one_is_excluded_or_not(low, high, excluded):
    assert Interval(low, high).excludes_one == excluded


def test_a_width_is_relative():
    assert Interval(1.9, 2.1).width_of(2.0) == pytest.approx(0.1)
    assert Interval(1.0, math.inf).width_of(2.0) == math.inf
    assert Interval(0.0, 1.0).width_of(0.0) == math.inf
