"""How a submission is timed where the GPU may not have been quiet, without a runner."""

import contextlib
from types import SimpleNamespace

import pytest

from evaluator.findings import Code, finding
from evaluator.judge import measure, stages
from evaluator.judge.session import Fault
from evaluator.judge.trial import Trial
from evaluator.records import Status
from tests import cards


@pytest.fixture
def shop():
    """A workshop whose runners answer nothing; it counts them."""
    bench = SimpleNamespace(look_closely=lambda: None)
    place = SimpleNamespace(load=lambda: None, construct=lambda: None, bench=lambda: bench)
    runners = []

    @contextlib.contextmanager
    def runner(source, desk):
        runners.append(source)
        yield place

    return SimpleNamespace(
        source="",
        desk=lambda: None,
        runner=runner,
        runners=runners,
        seeds=SimpleNamespace(timed=lambda side: iter(())),
        call_timeout_s=1.0,
        look=lambda: None,
    )


def faults(monkeypatch, *codes):
    """Have a side fail with each of these in turn, and then be measured."""
    left = [Fault(Status.REJECTED, finding(code, "it worked on")) for code in codes]
    good = measure.Side(cards.samples("submission", 1.0), None)

    def side(*_):
        return measure.Side(None, Trial(None, left.pop(0), 0.0, copied=False)) if left else good

    monkeypatch.setattr(measure, "side", side)
    return good.samples


def test_what_somebody_else_may_have_done_is_no_verdict_before_it_was_seen_three_times(shop, monkeypatch):
    samples = faults(monkeypatch, Code.WORK_AFTER_DONE, Code.NOT_QUIET)
    assert stages._timed_submission(shop, None) is samples
    assert len(shop.runners) == 3
    faults(monkeypatch, Code.WORK_AFTER_DONE, Code.WORK_AFTER_DONE, Code.WORK_AFTER_DONE)
    refused = stages._timed_submission(shop, None)
    assert (refused.fault.status, refused.fault.finding.code) == (Status.REJECTED, Code.WORK_AFTER_DONE.value)
    assert len(shop.runners) == 6


def test_what_nobody_else_can_have_done_is_seen_once(shop, monkeypatch):
    faults(monkeypatch, Code.WRONG_VALUES)
    assert stages._timed_submission(shop, None).fault.finding.code == Code.WRONG_VALUES.value
    assert len(shop.runners) == 1
