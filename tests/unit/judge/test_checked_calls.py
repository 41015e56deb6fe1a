"""The checked calls of a runner up to the first failure, and how long the calls after it would take."""

import math
from types import SimpleNamespace

import pytest

from evaluator.findings import Code, finding
from evaluator.judge import checked_calls as checked
from evaluator.judge.checked_calls import checked_calls
from evaluator.judge.trial.retry import SEARCH_S
from evaluator.judge.trial.trial import Trial
from evaluator.records import DeviceKind, Fault, Status
from evaluator.sandbox.time_limit import CpuTime
from tests.unit.judge.grades import Grade, terms

TIMED_OUT = Fault(Status.TIMEOUT, finding(Code.TIMED_OUT, "call 1 timed out"))
SEEDS = [3, 4, 5, 6, 7]
PROOFS = [50, 51, 52]


class Checked(Grade):
    """A grade with five checked calls, and three that may prove an output; the call `failing` times out.

    The answers prove the outputs after `proven_by` calls.
    """

    lacks_calls = False

    def __init__(self, device=DeviceKind.CPU, failing=None, proven_by=0):
        super().__init__()
        self.terms, self.made, self._failing, self._proven_by = terms(device), [], failing, proven_by
        self.trial_runner, self.pace_s, self.earlier_weights = self, 2.0, ()
        self.seeds.checks, self.seeds.proofs = lambda _: SEEDS, lambda: iter(PROOFS)
        self.seeds.more_checks = lambda count, _: list(range(100, 100 + 24 - count))

    @property
    def lacks_proof(self):
        return len(self.made) < self._proven_by

    def run(self, index, seed, **_):
        self.made.append(seed)
        return Trial(None, TIMED_OUT if index == self._failing else None, 1.0, copied=False)

    def unproven(self):
        return None

    def called(self):
        return checked_calls(self, self.place)


@pytest.mark.parametrize(("failing", "more_s"), [(0, 8.0), (1, 6.0), (4, 0.0), (None, 0.0)])
def test_calls_that_a_failure_prevented_take_as_long_as_those_before(failing, more_s):
    grade = Checked(failing=failing)
    called = grade.called()
    assert grade.made == (SEEDS if failing is None else SEEDS[: failing + 1])
    assert called.fault is (None if failing is None else TIMED_OUT)
    assert called.more_s == more_s


@pytest.mark.parametrize(("device", "search_s"), [(DeviceKind.CPU, math.inf), (DeviceKind.CUDA, SEARCH_S)])
def test_the_search_for_a_cause_has_a_time_limit_on_a_gpu(monkeypatch, device, search_s):
    asked = []
    monkeypatch.setattr(
        checked, "retried", lambda _, trial, *__, search_s: asked.append(search_s) or (trial.fault, None)
    )
    assert Checked(device, failing=0).called().fault is TIMED_OUT
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
    grade = Checked(DeviceKind.EMULATED, proven_by=proven_by)
    grade.lacks_calls = lacks_calls
    monkeypatch.setattr(checked, "time", SimpleNamespace(monotonic=lambda: wall_s * len(grade.made)))
    grade.place.session.child.cpu_time = lambda: CpuTime(cpu_s * len(grade.made), {1: cpu_s * len(grade.made)})
    called = grade.called()
    assert grade.made[:5] == SEEDS
    assert len(grade.made) == made
    told = [each.message for each in called.remarks if each.code == Code.FEWER_CALLS.value]
    about = f"{made} of 24 calls were checked: these took {made * cpu_s:.0f} s of CPU time"
    assert told == ([] if made == 24 else [about])


@pytest.mark.parametrize(("proven_by", "made"), [(5, 5), (7, 7), (100, 8)])
def test_more_calls_follow_until_the_outputs_are_proven(proven_by, made):
    """VGG16: wrong answers to its distributions are 2 to 22 tolerances off, and two calls of 8 tolerances are asked."""
    grade = Checked(proven_by=proven_by)
    grade.called()
    assert grade.made == [*SEEDS, *PROOFS][:made]
