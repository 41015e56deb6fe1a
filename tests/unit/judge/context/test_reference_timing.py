"""The reference's side of a timing, without a runner."""

import contextlib
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from evaluator.errors import JudgeFailed
from evaluator.findings import Code, finding
from evaluator.judge.context import reference_timing
from evaluator.judge.trial import timing_loop
from evaluator.judge.trial.trial_runner import Trial
from evaluator.judge.trial.window_loop import SpotRule
from evaluator.records import Fault, Status
from evaluator.timing.agreement import excess_ms
from tests import cards


@pytest.fixture
def kept(monkeypatch):
    """A lasting timer, whose clock the test moves and whose measurements it counts."""
    clock = SimpleNamespace(now_s=1000.0, measured=[])

    def overhead(trial_runner, timeout_s):
        clock.measured.append(trial_runner)
        return timing_loop.Overhead(float(len(clock.measured)), 0.0, None, None, None, None, None)

    monkeypatch.setattr(reference_timing.time, "monotonic", lambda: clock.now_s)
    monkeypatch.setattr(timing_loop, "overhead", overhead)
    return reference_timing.ReferenceTimer(SimpleNamespace(call_timeout_s=1.0), lasting=True), clock


def test_what_a_call_costs_is_measured_anew_after_a_while(kept):
    side, clock = kept
    assert side._known_overhead("one").taken_off_ms == 1.0
    clock.now_s += reference_timing.OVERHEAD_GOOD_S - 1
    assert side._known_overhead("other").taken_off_ms == 1.0
    clock.now_s += 2
    assert side._known_overhead("other").taken_off_ms == 2.0
    assert clock.measured == ["one", "other"]


def test_how_much_slower_the_reference_is_in_spot_checks_comes_with_its_times(kept, monkeypatch):
    side, _ = kept
    empty = timing_loop.Overhead(1.0, 0.0, None, None, None, None, None, spot=SpotRule(0.02))
    samples = cards.in_windows(cards.samples("reference_before", 0.3), 0.010, spot_ms=[0.0112, 0.0115, 0.0118])
    monkeypatch.setattr(side, "_runner", lambda: contextlib.nullcontext("one"))
    monkeypatch.setattr(timing_loop, "overhead", lambda *_: empty)
    monkeypatch.setattr(timing_loop, "side", lambda *_, **__: timing_loop.TimedSide(samples, None))
    side._context.gpu_session, side._context.begin_side = None, lambda: None
    side._context.seeds = SimpleNamespace(timed=lambda _: iter(()))
    spot = side.before().overhead.spot
    assert spot.constant_ms == 0.02
    assert excess_ms(spot.reference) == pytest.approx(0.0012)
    assert side._overhead.spot.reference is None  # Each side of the reference has its own.


class Starting:
    """A runner of the reference that was told to load and construct, and has not answered yet."""

    def __init__(self, name, story):
        self.name, self._story = name, story

    def begun(self):
        self._story.append(f"{self.name} answered")

    def sites(self, _):
        return SimpleNamespace(copied=False)

    def trial_runner(self, _):
        return self.name


@pytest.mark.parametrize("settled", [True, False])
def test_no_runner_of_the_reference_starts_while_the_other_is_timed(kept, settled):
    """And the two are taken in turn, from the first on."""
    side, story = kept[0], []
    side._starting.extend(Starting(name, story) for name in ("one", "other"))
    if settled:
        side.settle()
        assert story == ["one answered", "other answered"]
    for _ in range(5):
        with side._runner() as taken:
            story.append(taken)
    assert story == ["one answered", "other answered", "one", "other", "one", "other", "one"]


def test_a_reference_that_fails_while_that_is_measured_is_no_submissions_fault(kept, monkeypatch):
    side, _ = kept
    fault = Fault(Status.RUNTIME_ERROR, finding(Code.FORWARD_FAILED, "it broke"))
    monkeypatch.setattr(timing_loop, "overhead", lambda *_: fault)
    with pytest.raises(JudgeFailed, match="the reference's own runner failed: it broke"):
        side._known_overhead("one")


@pytest.fixture(autouse=True)
def rests_s(monkeypatch):
    """How long is waited: no test does."""
    asked = []
    monkeypatch.setattr(reference_timing.time, "sleep", asked.append)
    return asked


def sides_of(monkeypatch, *faults):
    """Have the reference fail with each of these in turn, and then have it measured."""
    left = [
        timing_loop.TimedSide(None, Trial(None, Fault(Status.REJECTED, fault), 0.0, copied=False)) for fault in faults
    ]
    good = timing_loop.TimedSide(cards.samples("reference_before", 1.0), None)
    monkeypatch.setattr(timing_loop, "side", lambda *_, **__: left.pop(0) if left else good)
    seeds = SimpleNamespace(timed=lambda _: iter(()))
    return reference_timing.ReferenceTimer(
        SimpleNamespace(call_timeout_s=1.0, seeds=seeds), lasting=False
    ), good.samples


@pytest.mark.parametrize("code", [Code.NOT_QUIET, Code.WORK_AFTER_DONE])
def test_a_disturbed_reference_is_measured_again_and_not_for_ever(monkeypatch, code, rests_s):
    busy = finding(code, "the GPU stayed busy")
    side, samples = sides_of(monkeypatch, busy, busy)
    assert side._undisturbed("reference_before", None, None) == samples
    assert rests_s == [0.0, 1.0, 2.0]
    side, _ = sides_of(monkeypatch, busy, busy, busy)
    with pytest.raises(JudgeFailed, match="disturbed the reference 3 times: the GPU stayed busy") as failed:
        side._undisturbed("reference_before", None, None)
    assert "end other work on this GPU" in failed.value.hint


def test_a_reference_that_is_wrong_is_not_measured_again(monkeypatch):
    side, _ = sides_of(monkeypatch, finding(Code.WRONG_VALUES, "1 of 9 values differ"))
    with pytest.raises(JudgeFailed, match="fails its own check: 1 of 9 values differ"):
        side._undisturbed("reference_before", None, None)


def test_the_first_call_of_a_disturbed_reference_stays_the_first(monkeypatch):
    late = Trial(None, Fault(Status.REJECTED, finding(Code.WORK_AFTER_DONE, "it worked on")), 0.0, copied=False)
    samples = cards.samples("reference_after", 1.0)
    sides = iter(
        [
            timing_loop.TimedSide(replace(samples, first_call_ms=50.0), late),
            timing_loop.TimedSide(replace(samples, first_call_ms=1.0), None),
        ]
    )
    monkeypatch.setattr(timing_loop, "side", lambda *_, **__: next(sides))
    context = SimpleNamespace(call_timeout_s=1.0, seeds=SimpleNamespace(timed=lambda _: iter(())))
    found = reference_timing.ReferenceTimer(context, lasting=False)._undisturbed("reference_after", None, None)
    assert found.first_call_ms == 50.0
