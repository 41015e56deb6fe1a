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
from evaluator.judge.trial.timing_loop import TimedSide
from evaluator.judge.trial.trial import Trial
from evaluator.judge.trial.windows import SpotRule
from evaluator.records import Fault, Status
from evaluator.timing.agreement import excess_ms
from tests import cards

EMPTY = Overhead(0.0, 0.0, None, None, None, None, None)
HALVES = ["reference_before", "reference_after"]


class Measured:
    """A timer with a clock that the test moves. Its halves and probes take `times` in turn: medians, or whole sides.

    `did` has what happens to its runners; there is room for two that are kept, or only for one at a time.
    """

    def __init__(self, monkeypatch, times=(), *, lasting=True, room=False):
        self.now_s, self.made, self.resumes, self.overhead = 1000.0, [], True, EMPTY
        self.settled, self.spot_checks, self.rests_s, self.used, self.did = [], [], [], [], []
        self._times, self._names = iter(times), iter(("one", "other", "third", "fourth", "fifth", "sixth"))
        context = SimpleNamespace(
            settle=lambda: self.settled.append(len(self.made)),
            terms=SimpleNamespace(device=None),
            call_timeout_s=1.0,
            gpu_session=SimpleNamespace(
                monitor=SimpleNamespace(resumes=lambda _: self.resumes, sample=lambda: "a state"),
                add_own=lambda processes: None,
            ),
            begin_side=lambda: None,
            seeds=SimpleNamespace(timed=lambda _: iter(())),
            backend=SimpleNamespace(room_for=lambda runners: room),
            runners=SimpleNamespace(start=self._start),
        )
        self.timer = reference_timing.ReferenceTimer(context, lasting=lasting)
        clock = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self.rests_s.append)
        monkeypatch.setattr(reference_timing, "time", clock)
        monkeypatch.setattr(call_overhead, "measured", lambda *_: self.overhead)
        monkeypatch.setattr(timing_loop, "side", self._side)
        monkeypatch.setattr(timing_loop, "probe", self._probe)

    @contextlib.contextmanager
    def _start(self, source, *, trusted):
        name = next(self._names)
        child = SimpleNamespace(members=frozenset, condemn=lambda: self.did.append(f"{name} condemned"))
        yield SimpleNamespace(
            session=SimpleNamespace(child=child),
            begin=lambda: None,
            begun=lambda: self.did.append(f"{name} answered"),
            sites=lambda _: SimpleNamespace(copied=False),
            trial_runner=lambda _: name,
        )

    def _side(self, name, runner, *_, spot_checks, **__):
        self.made.append(name)
        self.used.append(runner)
        self.spot_checks.append(spot_checks)
        found = next(self._times)
        return found if isinstance(found, TimedSide) else TimedSide(cards.samples(name, found), None)

    def _probe(self, runner, *_):
        self.made.append("probe")
        self.used.append(runner)
        return next(self._times)

    def grade(self):
        """Return the medians of the halves around a submission, and the drift probe."""
        before, after = self.timer.before(), self.timer.after()
        return before.samples.median_ms, after.samples.median_ms, after.probe_ms


def test_submissions_of_a_problem_share_the_halves_and_each_has_a_probe(monkeypatch):
    measured = Measured(monkeypatch, [1.0, 1.001, 1.0005, 1.0006])
    assert [measured.grade() for _ in range(3)] == [(1.0, 1.001, None), (1.0, 1.001, 1.0005), (1.0, 1.001, 1.0006)]
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


@pytest.mark.parametrize(("probe_ms", "is_ended"), [(None, True), (1.2, False), (1.0, False)])
def test_a_runner_that_may_owe_an_answer_to_the_probe_is_used_no_more(monkeypatch, probe_ms, is_ended):
    """The answer would come as that of the next submission's reference."""
    measured = Measured(monkeypatch, [1.0, 1.0, probe_ms, 1.2], room=True)
    measured.grade()
    measured.grade()
    assert ("one condemned" in measured.did) is is_ended
    assert not is_ended or measured.used[-1] == "third"


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
    samples = cards.in_windows(cards.samples("reference_before", 0.3), 0.010, spot_ms=[0.0112, 0.0115, 0.0118])
    measured = Measured(monkeypatch, [TimedSide(samples, None)])
    measured.overhead = EMPTY._replace(taken_off_ms=1.0, spot=SpotRule(0.02))
    spot = measured.timer.before().overhead.spot
    assert spot.constant_ms == 0.02
    assert excess_ms(spot.reference) == pytest.approx(0.0012)


def test_no_runner_of_the_reference_starts_while_the_other_is_timed(monkeypatch):
    """And the two are taken in turn, from the first on."""
    measured = Measured(monkeypatch, [1.0] * 5, room=True)
    for _ in range(4):
        measured.grade()
    assert measured.did == ["one answered", "other answered"]
    assert measured.used == ["one", "other", "one", "other", "one"]


def test_a_reference_that_fails_while_that_is_measured_is_no_submissions_fault(monkeypatch):
    measured = Measured(monkeypatch)
    measured.overhead = Fault(Status.RUNTIME_ERROR, finding(Code.FORWARD_FAILED, "it broke"))
    with pytest.raises(JudgeFailed, match="the reference's own runner failed: it broke"):
        measured.timer.before()


def failed(code, message="the GPU stayed busy", samples=None):
    return TimedSide(samples, Trial(None, Fault(Status.REJECTED, finding(code, message)), 0.0, copied=False))


@pytest.mark.parametrize("code", [Code.NOT_QUIET, Code.WORK_AFTER_DONE])
def test_a_disturbed_reference_is_measured_again_and_not_for_ever(monkeypatch, code):
    measured = Measured(monkeypatch, [failed(code), failed(code), 1.0])
    assert measured.timer.before().samples.median_ms == 1.0
    assert measured.rests_s == [0.0, 1.0, 2.0]
    with pytest.raises(JudgeFailed, match="disturbed the reference 3 times: the GPU stayed busy") as refused:
        Measured(monkeypatch, [failed(code)] * 3).timer.before()
    assert "end other work on this GPU" in refused.value.hint


def test_a_reference_that_is_wrong_is_not_measured_again(monkeypatch):
    wrong = failed(Code.WRONG_VALUES, "1 of 9 values differ")
    with pytest.raises(JudgeFailed, match="fails its own check: 1 of 9 values differ"):
        Measured(monkeypatch, [wrong]).timer.before()


def test_the_first_call_of_a_disturbed_reference_stays_the_first(monkeypatch):
    samples = cards.samples("reference_before", 1.0)
    late = failed(Code.WORK_AFTER_DONE, samples=replace(samples, first_call_ms=50.0))
    right = TimedSide(replace(samples, first_call_ms=1.0), None)
    assert Measured(monkeypatch, [late, right]).timer.before().samples.first_call_ms == 50.0


@pytest.mark.parametrize(
    ("lasting", "is_hidden", "second"), [(True, False, ["probe"]), (True, True, HALVES), (False, False, HALVES)]
)
def test_a_lasting_timer_keeps_the_measurements_of_a_listed_case_and_no_runner(monkeypatch, lasting, is_hidden, second):
    measured = Measured(monkeypatch, [1.0] * 4, lasting=lasting, room=lasting and not is_hidden)
    for _ in range(2):
        with measured.timer.at("decode", is_hidden=is_hidden) as timer:
            timer.before()
            timer.after()
    assert measured.made == [*HALVES, *second]
    assert measured.did.count("one condemned") == (lasting and not is_hidden)
