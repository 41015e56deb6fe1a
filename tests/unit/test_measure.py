"""How a side is measured, with a bench that answers from a list instead of a runner."""

import itertools

import pytest

from evaluator.frames import Done
from evaluator.judge.clock import Answered
from evaluator.judge.measure import MIN_CALLS, Overhead, overhead, side
from evaluator.judge.trial import Trial

HOST = Overhead(median_ms=0.1, iqr_ms=0.01, quiet_ms=None, lag_ms=None, host_ms=None)


class Script:
    """Answers call by call from `times_ms`, the last one again and again."""

    def __init__(self, times_ms, empty_ms=0.0, **seen):
        self.empty_ms = empty_ms
        self._times_ms = itertools.chain(times_ms, itertools.repeat(times_ms[-1]))
        self._seen = seen

    def run(self, index, seed, *, timeout_s):
        return Trial(None, None, next(self._times_ms), copied=False, **self._seen)

    def run_empty(self, index, *, timeout_s):
        done = Done(index=index, outputs=None, gradients=None)
        return Answered(done, next(self._times_ms), **self._seen)


def test_the_overhead_is_a_median_less_what_the_empty_call_does_itself():
    empty = overhead(Script([9.0, 0.3, 0.5, 0.4], empty_ms=0.1), 1.0)
    assert empty.median_ms == pytest.approx(0.4 - 0.1)
    assert (empty.quiet_ms, empty.lag_ms, empty.host_ms) == (None, None, None)


def test_the_hosts_part_of_an_empty_call_is_measured_where_there_is_a_gpu():
    empty = overhead(Script([0.3], host_ms=0.2, prepared_ms=1.0, lag_ms=0.005), 1.0)
    assert empty.host_ms == 0.2
    measured = side(
        "submission", Script([1.3], host_ms=0.9, prepared_ms=1.0, lag_ms=0.005), itertools.count(), empty, 1.0
    )
    assert measured.samples.host_ms == 0.9
    assert measured.samples.overhead_host_ms == 0.2


def test_the_first_call_stands_apart_and_the_overhead_is_taken_off():
    samples = side("submission", Script([5.1, 1.1]), itertools.count(), HOST, 1.0).samples
    assert samples.first_call_ms == pytest.approx(5.0)
    assert samples.samples_ms == pytest.approx([1.0] * MIN_CALLS)
    assert len(samples.seeds) == MIN_CALLS + 1
    assert (samples.outliers, samples.overhead_host_ms) == (0, None)


def test_outliers_are_counted_and_kept():
    samples = side("submission", Script([1.1, 1.1, 9.1, 1.1, 8.1, 1.1]), itertools.count(), HOST, 1.0).samples
    assert samples.outliers == 2
    assert max(samples.samples_ms) == pytest.approx(9.0)
    assert samples.median_ms == pytest.approx(1.0)
