"""The reference's side of a timing, without a runner."""

from types import SimpleNamespace

import pytest

from evaluator.errors import JudgeFailed
from evaluator.findings import Code, finding
from evaluator.judge import baseline, measure
from evaluator.judge.session import Fault
from evaluator.records import Status


@pytest.fixture
def kept(monkeypatch):
    """A lasting baseline, whose clock the test moves and whose measurements it counts."""
    clock = SimpleNamespace(now_s=1000.0, measured=[])

    def overhead(bench, timeout_s):
        clock.measured.append(bench)
        return measure.Overhead(float(len(clock.measured)), 0.0, None, None, None)

    monkeypatch.setattr(baseline.time, "monotonic", lambda: clock.now_s)
    monkeypatch.setattr(measure, "overhead", overhead)
    return baseline.Baseline(SimpleNamespace(call_timeout_s=1.0), lasting=True), clock


def test_what_a_call_costs_is_measured_anew_after_a_while(kept):
    side, clock = kept
    assert side._known_overhead("one").median_ms == 1.0
    clock.now_s += baseline.OVERHEAD_GOOD_S - 1
    assert side._known_overhead("other").median_ms == 1.0
    clock.now_s += 2
    assert side._known_overhead("other").median_ms == 2.0
    assert clock.measured == ["one", "other"]


def test_a_reference_that_fails_while_that_is_measured_is_no_submissions_fault(kept, monkeypatch):
    side, _ = kept
    fault = Fault(Status.RUNTIME_ERROR, finding(Code.FORWARD_FAILED, "it broke"))
    monkeypatch.setattr(measure, "overhead", lambda *_: fault)
    with pytest.raises(JudgeFailed, match="the reference's own runner failed: it broke"):
        side._known_overhead("one")
