"""When the single calls of a side are enough."""

import pytest

from evaluator.judge.trial.enough_calls import MAX_CALLS, MIN_CALLS, REFERENCE_CALLS, enough
from evaluator.records import ClockKind


def scattered(calls, width):
    """Times around 100 ms whose median has an interval of the relative `width`."""
    return [100 * (1 + width / 2 * (-1) ** number) for number in range(calls)]


def is_enough(times_ms, elapsed_s, at_least=MIN_CALLS, *, lacking=False, clock=ClockKind.SEALED, spread_ms=0.0):
    return enough(times_ms, at_least, elapsed_s, clock=clock, spread_ms=spread_ms, lacking=lacking)


@pytest.mark.parametrize(
    ("clock", "spread_ms", "width_ms", "is_narrow"),
    [
        (ClockKind.HOST, 0.0, 0.0018, True),  # less than a 500th
        (ClockKind.HOST, 0.0, 0.01, False),
        (ClockKind.HOST, 0.2, 0.09, True),
        (ClockKind.HOST, 0.2, 0.11, False),
        (ClockKind.SEALED, 0.001, 0.007, True),  # 15 us of error stand in every interval
        (ClockKind.SEALED, 0.001, 0.012, False),
    ],
)
def test_no_calls_are_made_for_what_the_clock_cannot_tell(clock, spread_ms, width_ms, is_narrow):
    times_ms = [1.0 + width_ms * (number % 2) for number in range(MIN_CALLS)]
    assert is_enough(times_ms, 0.0, clock=clock, spread_ms=spread_ms) is is_narrow


@pytest.mark.parametrize(
    ("elapsed_s", "width", "is_narrow"),
    [
        (0.1, 0.0018, True),  # less than a 500th
        (0.1, 0.0025, False),
        (0.5, 0.0048, True),
        (0.5, 0.0055, False),
        (1.0, 0.0095, True),
        (1.0, 0.011, False),
        (1.9, 0.018, True),
        (1.9, 0.03, False),
        (2.0, 0.3, True),  # at the time limit
    ],
)
def test_the_longer_calls_have_taken_the_wider_their_interval_may_be(elapsed_s, width, is_narrow):
    assert is_enough(scattered(40, width), elapsed_s) is is_narrow


def test_no_time_and_no_precision_replaces_the_fewest_calls():
    assert not is_enough([100.0] * (MIN_CALLS - 1), 60.0)
    assert is_enough([100.0] * MIN_CALLS, 0.1)


def test_the_precision_check_has_its_calls_whatever_they_take():
    assert not is_enough([100.0] * MIN_CALLS, 2.5, lacking=True)
    assert is_enough([100.0] * MIN_CALLS, 8.0, lacking=True)
    assert is_enough(scattered(MAX_CALLS, 0.3), 0.1, lacking=True)


def test_both_halves_of_the_reference_are_as_precise_as_the_submission():
    assert is_enough(scattered(REFERENCE_CALLS, 0.012), 1.0, at_least=REFERENCE_CALLS)
    assert not is_enough(scattered(MIN_CALLS, 0.012), 1.0)
    assert not is_enough(scattered(REFERENCE_CALLS, 0.02), 1.0, at_least=REFERENCE_CALLS)
