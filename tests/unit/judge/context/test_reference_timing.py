"""The reference's side of a timing, without a runner."""

import contextlib
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from evaluator.errors import JudgeFailed
from evaluator.findings import Code, finding
from evaluator.judge.context import reference_timing
from evaluator.judge.trial import call_overhead, timing_loop
from evaluator.judge.trial.call_overhead import Overhead
from evaluator.judge.trial.trial import Trial
from evaluator.judge.trial.windows import SpotRule
from evaluator.records import Fault, Status
from evaluator.timing.agreement import excess_ms
from tests import cards


class Measured:
    """A lasting timer, with a clock that the test moves. Its halves and probes take `times_ms` in turn."""

    def __init__(self, monkeypatch, times_ms, *, lasting=True):
        self.now_s, self.made, self.resumes = 1000.0, [], True
        self.settled: list[int] = []
        self.spot_checks: list[bool] = []
        self._times_ms = iter(times_ms)
        monitor = SimpleNamespace(resumes=lambda _: self.resumes, sample=lambda: "a state")
        context = SimpleNamespace(
            settle=lambda: self.settled.append(len(self.made)),
            call_timeout_s=1.0,
            gpu_session=SimpleNamespace(monitor=monitor),
            begin_side=lambda: None,
            seeds=SimpleNamespace(timed=lambda _: iter(())),
        )
        self.timer = reference_timing.ReferenceTimer(context, lasting=lasting)
        monkeypatch.setattr(reference_timing.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(self.timer, "_begin", lambda: None)
        monkeypatch.setattr(self.timer, "_runner", lambda: contextlib.nullcontext("a runner"))
        monkeypatch.setattr(call_overhead, "measured", lambda *_: EMPTY)
        monkeypatch.setattr(timing_loop, "side", self._side)
        monkeypatch.setattr(timing_loop, "probe", self._probe)

    def _side(self, name, *_, spot_checks, **__):
        self.made.append(name)
        self.spot_checks.append(spot_checks)
        return timing_loop.TimedSide(cards.samples(name, next(self._times_ms)), None)

    def _probe(self, *_):
        self.made.append("probe")
        return next(self._times_ms)

    def grade(self):
        """Return the medians of the halves around a submission, and the drift probe."""
        before, after = self.timer.before(), self.timer.after()
        return before.samples.median_ms, after.samples.median_ms, after.probe_ms


EMPTY = Overhead(0.0, 0.0, None, None, None, None, None)
HALVES = ["reference_before", "reference_after"]


def test_submissions_of_a_problem_share_the_halves_and_each_has_a_probe(monkeypatch):
    measured = Measured(monkeypatch, [1.0, 1.001, 1.0005, 1.0006])
    assert [measured.grade() for _ in range(3)] == [
        (1.0, 1.001, None),
        (1.0, 1.001, 1.0005),
        (1.0, 1.001, 1.0006),
    ]
    assert measured.made == [*HALVES, "probe", "probe"]
    assert measured.settled == [0], "idle runners may start beside the checks of a grade that measures no reference"
    assert measured.spot_checks == [True, False], "a submission's spot checks are compared with the half before"


@pytest.mark.parametrize("probe_ms", [1.2, 0.8, None])
def test_a_gpu_that_is_another_than_before_is_measured_again(monkeypatch, probe_ms):
    measured = Measured(monkeypatch, [1.0, 1.0, probe_ms, 1.2, 1.21, 1.22])
    assert measured.grade() == (1.0, 1.0, None)
    assert measured.grade() == (1.0, 1.2, probe_ms)  # The quote sees both halves, and that they differ.
    assert measured.grade() == (1.21, 1.22, None)
    assert measured.made == [*HALVES, "probe", "reference_after", *HALVES]


@pytest.mark.parametrize(("probe_ms", "ended"), [(None, 1), (1.2, 0), (1.0, 0)])
def test_a_runner_that_may_owe_an_answer_to_the_probe_is_used_no_more(monkeypatch, probe_ms, ended):
    """The answer would come as that of the next submission's reference."""
    measured = Measured(monkeypatch, [1.0, 1.0, probe_ms, 1.2])
    measured.grade()
    measured.timer._trial_runners.append("one that is kept")
    measured.grade()
    assert len(measured.timer._trial_runners) == 1 - ended


@pytest.mark.parametrize(("later_s", "resumes"), [(reference_timing.GOOD_S + 1, True), (1.0, False)])
def test_old_halves_and_those_of_a_cooler_gpu_are_measured_again(monkeypatch, later_s, resumes):
    measured = Measured(monkeypatch, [1.0, 1.0, 2.0, 2.0])
    measured.grade()
    measured.now_s, measured.resumes = measured.now_s + later_s, resumes
    assert measured.grade() == (2.0, 2.0, None)


def test_halves_of_which_one_was_disturbed_are_not_kept(monkeypatch):
    measured = Measured(monkeypatch, [1.0, 1.1, 1.0, 1.001, 1.0])
    assert [measured.grade() for _ in range(3)] == [(1.0, 1.1, None), (1.0, 1.001, None), (1.0, 1.001, 1.0)]


def test_a_wrong_submission_leaves_the_half_before_to_the_next(monkeypatch):
    measured = Measured(monkeypatch, [1.0, 1.001])
    measured.timer.before()
    measured.now_s += 3.0
    assert measured.grade() == (1.0, 1.001, None)
    assert measured.made == HALVES


def test_a_single_grade_measures_both_halves(monkeypatch):
    measured = Measured(monkeypatch, [1.0, 1.0, 2.0, 2.0], lasting=False)
    assert (measured.grade(), measured.grade()) == ((1.0, 1.0, None), (2.0, 2.0, None))


@pytest.mark.parametrize(
    ("usual_ms", "spread_ms", "probe_ms", "drifted"),
    [
        (0.044, 0.0, 0.0442, False),
        (0.044, 0.0, 0.0443, True),
        (0.044, 0.001, 0.0443, False),
        (2.66, 0.0, 2.667, False),
        (2.66, 0.0, 2.65, True),
    ],
)
def test_a_drift_is_more_than_three_thousandths_and_the_scatter(usual_ms, spread_ms, probe_ms, drifted):
    half = replace(
        cards.samples("reference_before", usual_ms), samples_ms=[usual_ms - spread_ms, usual_ms, usual_ms + spread_ms]
    )
    assert reference_timing.has_drifted(probe_ms, [half, half]) is drifted


def test_how_much_slower_the_reference_is_in_spot_checks_comes_with_its_times(monkeypatch):
    side = Measured(monkeypatch, []).timer
    empty = Overhead(1.0, 0.0, None, None, None, None, None, spot=SpotRule(0.02))
    samples = cards.in_windows(cards.samples("reference_before", 0.3), 0.010, spot_ms=[0.0112, 0.0115, 0.0118])
    monkeypatch.setattr(call_overhead, "measured", lambda *_: empty)
    monkeypatch.setattr(timing_loop, "side", lambda *_, **__: timing_loop.TimedSide(samples, None))
    spot = side.before().overhead.spot
    assert spot.constant_ms == 0.02
    assert excess_ms(spot.reference) == pytest.approx(0.0012)


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
def test_no_runner_of_the_reference_starts_while_the_other_is_timed(settled):
    """And the two are taken in turn, from the first on."""
    side, story = reference_timing.ReferenceTimer(SimpleNamespace(), lasting=True), []
    side._starting.extend(Starting(name, story) for name in ("one", "other"))
    if settled:
        side.settle()
        assert story == ["one answered", "other answered"]
    for _ in range(5):
        with side._runner() as taken:
            story.append(taken)
    assert story == ["one answered", "other answered", "one", "other", "one", "other", "one"]


def test_a_reference_that_fails_while_that_is_measured_is_no_submissions_fault(monkeypatch):
    side = Measured(monkeypatch, []).timer
    fault = Fault(Status.RUNTIME_ERROR, finding(Code.FORWARD_FAILED, "it broke"))
    monkeypatch.setattr(call_overhead, "measured", lambda *_: fault)
    with pytest.raises(JudgeFailed, match="the reference's own runner failed: it broke"):
        side.before()


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


@pytest.mark.parametrize(
    ("lasting", "is_hidden", "second"), [(True, False, ["probe"]), (True, True, HALVES), (False, False, HALVES)]
)
def test_a_lasting_timer_keeps_the_measurements_of_a_listed_case(monkeypatch, lasting, is_hidden, second):
    measured = Measured(monkeypatch, [1.0] * 4, lasting=lasting)
    monkeypatch.setattr(reference_timing.ReferenceTimer, "_begin", lambda _: None)
    monkeypatch.setattr(reference_timing.ReferenceTimer, "_runner", lambda _: contextlib.nullcontext("a runner"))
    for _ in range(2):
        with measured.timer.at("decode", is_hidden=is_hidden) as timer:
            timer.before()
            timer._trial_runners.append("a runner of the case")
            timer.after()
        assert not timer._trial_runners
    assert measured.made == [*HALVES, *second]
