"""The checked calls of a runner up to the first failure, and how long the calls after it would take."""

from types import SimpleNamespace

import pytest

from evaluator.findings import Code, finding
from evaluator.judge.checked_calls import checked_calls
from evaluator.judge.inputs.changing_weights import NO_SITES
from evaluator.judge.trial.trial_runner import Trial
from evaluator.protocol.frames import Constructed
from evaluator.records import DeviceKind, Fault, Status

TIMED_OUT = Fault(Status.TIMEOUT, finding(Code.TIMED_OUT, "call 1 timed out"))
SEEDS = [3, 4, 5, 6, 7]


@pytest.mark.parametrize(("failing", "more_s"), [(0, 8.0), (1, 6.0), (4, 0.0), (None, 0.0)])
def test_calls_that_a_failure_prevented_take_as_long_as_those_before(failing, more_s):
    made = []

    def run(index, seed, **_):
        made.append(seed)
        return Trial(None, TIMED_OUT if index == failing else None, 1.0, copied=False)

    trial_runner = SimpleNamespace(run=run, pace_s=2.0, earlier_weights=[], unproven=lambda: None)
    model_runner = SimpleNamespace(
        load=lambda **_: None,
        construct=lambda: Constructed(difference=None, weights={}, assumed={}),
        sites=lambda _: NO_SITES,
        trial_runner=lambda _: trial_runner,
    )
    context = SimpleNamespace(
        terms=SimpleNamespace(device=DeviceKind.CPU, is_timed=True),
        seeds=SimpleNamespace(checks=lambda *, timed: SEEDS),
        call_timeout_s=1.0,
    )
    called = checked_calls(context, model_runner)
    assert made == (SEEDS if failing is None else SEEDS[: failing + 1])
    assert called.fault is (None if failing is None else TIMED_OUT)
    assert called.more_s == more_s
