"""The checked calls of a runner up to the first failure, and how long the calls after it would take."""

import itertools
import math
from types import SimpleNamespace

import pytest

from evaluator.findings import Code, finding
from evaluator.judge import checked_calls as checked
from evaluator.judge.checked_calls import checked_calls
from evaluator.judge.reference.changing_weights import NO_SITES
from evaluator.judge.trial.retry import SEARCH_S
from evaluator.judge.trial.trial import Trial
from evaluator.protocol.frames import Constructed
from evaluator.records import DeviceKind, Fault, SizeName, Status
from evaluator.sandbox.time_limit import CpuTime

TIMED_OUT = Fault(Status.TIMEOUT, finding(Code.TIMED_OUT, "call 1 timed out"))
SEEDS = [3, 4, 5, 6, 7]
PROOFS = [50, 51, 52]


def _model_runner(trial_runner, cpu_time=lambda: CpuTime(0.0, {})):
    return SimpleNamespace(
        load=lambda **_: None,
        construct=lambda: Constructed(difference=None, weights={}, assumed={}),
        sites=lambda _: NO_SITES,
        trial_runner=lambda _: trial_runner,
        session=SimpleNamespace(child=SimpleNamespace(cpu_time=cpu_time)),
    )


class Proving:
    """A trial runner with right answers, which prove the outputs after `proven_by` of `calls`."""

    pace_s, earlier_weights = 0.0, ()

    def __init__(self, calls, proven_by, lacks_calls=False):
        self._calls, self._proven_by, self.lacks_calls = calls, proven_by, lacks_calls

    @property
    def lacks_proof(self):
        return len(self._calls) < self._proven_by

    def run(self, index, seed, **_):
        self._calls.append(seed)
        return Trial(None, None, 1.0, copied=False)

    def unproven(self):
        return None


def _context(*, is_timed):
    more = lambda count, _: list(range(100, 100 + 24 - count))  # noqa: E731
    return SimpleNamespace(
        terms=SimpleNamespace(
            device=DeviceKind.CPU if is_timed else DeviceKind.EMULATED, gpu=None, is_timed=is_timed, size=SizeName.SMALL
        ),
        seeds=SimpleNamespace(
            checks=lambda _: SEEDS,
            more_checks=more,
            schedules=lambda _: itertools.repeat(None),
            proofs=lambda: iter(PROOFS),
        ),
        call_timeout_s=1.0,
        right_at=(),
        reference=None,
    )


@pytest.mark.parametrize(("failing", "more_s"), [(0, 8.0), (1, 6.0), (4, 0.0), (None, 0.0)])
def test_calls_that_a_failure_prevented_take_as_long_as_those_before(failing, more_s):
    made = []

    def run(index, seed, **_):
        made.append(seed)
        return Trial(None, TIMED_OUT if index == failing else None, 1.0, copied=False)

    trial_runner = SimpleNamespace(run=run, pace_s=2.0, earlier_weights=[], unproven=lambda: None, lacks_proof=False)
    called = checked_calls(_context(is_timed=True), _model_runner(trial_runner))
    assert made == (SEEDS if failing is None else SEEDS[: failing + 1])
    assert called.fault is (None if failing is None else TIMED_OUT)
    assert called.more_s == more_s


@pytest.mark.parametrize(("gpu", "search_s"), [(None, math.inf), ("a GPU", SEARCH_S)])
def test_the_search_for_a_cause_has_a_time_limit_on_a_gpu(monkeypatch, gpu, search_s):
    asked = []
    monkeypatch.setattr(
        checked, "retried", lambda _, trial, *__, search_s: asked.append(search_s) or (trial.fault, None)
    )
    context = _context(is_timed=True)
    context.terms.gpu = gpu
    failing = SimpleNamespace(run=lambda *_, **__: Trial(None, TIMED_OUT, 1.0, copied=False), pace_s=2.0)
    assert checked_calls(context, _model_runner(failing)).fault is TIMED_OUT
    assert asked == [search_s]


@pytest.mark.parametrize(
    ("wall_s", "cpu_s", "proven_by", "lacks_calls", "made"),
    [
        (6.0, 6.0, 2, False, 8),
        (6.0, 6.0, 12, False, 12),
        (6.0, 6.0, 2, True, 16),
        (3.0, 3.0, 2, False, 14),
        (6.0, 0.5, 2, False, 24),
        (0.5, 1.0, 2, False, 24),
    ],
    ids=["slow", "slow and unproven", "slow and too small for precision", "less slow", "starved or asleep", "fast"],
)
def test_a_slow_submission_has_fewer_checked_calls(monkeypatch, wall_s, cpu_s, proven_by, lacks_calls, made):
    """89_cumsum: 24 calls of 6 s each. CPU time decides, and the calls that are evidence are always made."""
    calls = []
    monkeypatch.setattr(checked, "time", SimpleNamespace(monotonic=lambda: wall_s * len(calls)))

    now = lambda: CpuTime(cpu_s * len(calls), {1: cpu_s * len(calls)})  # noqa: E731
    called = checked_calls(_context(is_timed=False), _model_runner(Proving(calls, proven_by, lacks_calls), now))
    assert calls[:5] == SEEDS
    assert len(calls) == made
    told = [each.message for each in called.remarks if each.code == Code.FEWER_CALLS.value]
    about = f"{made} of 24 calls were checked: these took {made * cpu_s:.0f} s of CPU time"
    assert told == ([] if made == 24 else [about])


@pytest.mark.parametrize(("proven_by", "made"), [(5, 5), (7, 7), (100, 8)])
def test_more_calls_follow_until_the_outputs_are_proven(proven_by, made):
    """VGG16: wrong answers to its distributions are 2 to 22 tolerances off, and two calls of 8 tolerances are asked."""
    calls = []

    checked_calls(_context(is_timed=True), _model_runner(Proving(calls, proven_by)))
    assert calls == [*SEEDS, *PROOFS][:made]
