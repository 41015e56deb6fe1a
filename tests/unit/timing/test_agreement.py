"""Windows beside single calls and spot checks, with the times of an H200 where a submission had spoiled one of them."""

import statistics

import pytest
from msgspec.structs import replace

from evaluator.records import ClockKind, Windows
from evaluator.timing.agreement import disagreement, raised
from evaluator.timing.quote import quote
from tests.cards import samples


def windows_of(call_us, single_us, spot_us):
    """Windows of 24 and 32 calls, of times in us."""
    return Windows(
        calls=[24, 32],
        window_ms=[23e-3 * call_us, 31e-3 * call_us],
        clock_error_ms=0.0,
        single_ms=[single_us / 1e3] * 20,
        spot_ms=[spot_us / 1e3] * 15,
    )


def quoted_us(windows, reference):
    """What the windows of a submission are quoted with."""
    if disagreement(windows, reference) is not None:
        return statistics.median(windows.single_ms) * 1e3
    return (statistics.median(windows.measured_ms) + raised(windows, reference).added_ms) * 1e3


def by_empty_call(former_us, single_us, calls):
    """The time of a call by windows from which the single call was taken off: only an empty call is taken off now."""
    return (former_us * (calls - 1) + single_us) / calls


CUMSUM, CLAMP = windows_of(44.3, 52.0, 33.3), windows_of(4.95, 6.0, 4.0)
LINEAR, SOFTMAX = windows_of(47.5, 55.0, 47.0), windows_of(141.0, 146.0, 141.5)


@pytest.mark.parametrize(
    ("former_us", "single_us", "spot_us", "calls", "reference"),
    [
        (35.0, 246.0, 34.0, 16, CUMSUM),
        (4.26, 66.6, 4.0, 32, CLAMP),
        (33.6, 335.6, 10.6, 11, LINEAR),
        (128.0, 345.0, 44.0, 11, SOFTMAX),
    ],
    ids=["cumsum", "clamp", "linear", "softmax"],
)
def test_slow_single_calls_gain_nothing(former_us, single_us, spot_us, calls, reference):
    """They are no longer taken off, and are quoted themselves."""
    call_us = by_empty_call(former_us, single_us, calls)
    assert call_us >= statistics.median(reference.measured_ms) * 1e3
    windows = windows_of(call_us, single_us, spot_us)
    assert quoted_us(windows, reference) == pytest.approx(single_us)


@pytest.mark.parametrize("reference", [CUMSUM, CLAMP, LINEAR, SOFTMAX], ids=["cumsum", "clamp", "linear", "softmax"])
@pytest.mark.parametrize("part", [0.98, 1.0, 1.02])
def test_honest_twins_are_quoted_by_their_windows(reference, part):
    call_us, single_us, spot_us = (
        1e3 * part * statistics.median(each) for each in (reference.measured_ms, reference.single_ms, reference.spot_ms)
    )
    assert quoted_us(windows_of(call_us, single_us, spot_us), reference) == pytest.approx(call_us)


@pytest.mark.parametrize(
    ("windows", "reference", "other"),
    [
        (windows_of(33.6, 45.0, 10.6), LINEAR, "an implausible 10.6 us when each call is released"),
        (windows_of(128.0, 140.0, 44.0), SOFTMAX, "an implausible 44 us when each call is released"),
        (windows_of(20.0, 45.0, 30.0), LINEAR, "30 us when each call is released"),
        (windows_of(35.0, 246.0, 34.0), CUMSUM, "246 us as a single call (the reference: 44.3 us and 52 us)"),
        (windows_of(35.0, 246.0, 34.0), None, "246 us as a single call"),
        # Kernels differ: a cumsum beside one that gains nothing from warm inputs, and a clamp of 4 Ki.
        (windows_of(44.3, 52.0, 33.3), LINEAR, None),
        (windows_of(2.3, 3.0, 1.5), SOFTMAX, None),
        # Cold instructions explain 30 us and a quarter of the call, beside those of the reference.
        (windows_of(40.0, 79.0, 40.0), None, None),
        (windows_of(40.0, 81.0, 40.0), None, "81 us as a single call"),
        (windows_of(40.0, 81.0, 40.0), LINEAR, None),
    ],
)
def test_the_measurement_that_disagrees_is_named(windows, reference, other):
    found = disagreement(windows, reference)
    assert found is None if other is None else found.startswith(other)


def test_reading_inputs_ahead_gains_nothing_where_spot_checks_show_a_smaller_speedup():
    """The reference takes 44.1 us in windows and 33.3 us in spot checks, the submission 34.4 and 33.2."""
    reference, windows = windows_of(44.1, 52.0, 33.3), windows_of(34.4, 52.0, 33.2)
    assert quoted_us(windows, reference) == pytest.approx(44.1 * 33.2 / 33.3)
    added_ms, error_ms = raised(windows, reference)
    before, submission = (
        replace(samples("side", 0.052), windows=each)
        for each in (reference, replace(windows, raised_ms=added_ms, clock_error_ms=error_ms))
    )
    found = quote(ClockKind.SEALED, before, submission, before)
    assert found.timing.speedup == pytest.approx(33.3 / 33.2)
    assert found.timing.speedup_low < 1 < found.timing.speedup_high
    assert not found.timing.significant
    (said,) = (each.message for each in found.findings if each.code == "T318")
    assert "a call takes 34.4 us in a window of calls, and 33.2 us when each call is released" in said
    assert said.endswith("44 us are quoted, for the smaller speedup")


@pytest.mark.parametrize(
    ("windows", "reference"),
    [
        (windows_of(40.0, 52.0, 33.2), CUMSUM),  # 10 % is not clear,
        (windows_of(4.2, 6.0, 4.2), CLAMP),  # nor is 1 us.
        (windows_of(34.4, 52.0, 33.2), None),
        (windows_of(34.4, 52.0, 0.0), CUMSUM),
        (windows_of(20.0, 30.0, 15.5), CUMSUM),  # Twice as fast in both.
    ],
)
def test_nothing_is_raised_without_a_clearly_smaller_speedup(windows, reference):
    assert raised(windows, reference) == (0.0, 0.0)
