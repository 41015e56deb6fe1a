"""How a submission is timed where the GPU may not have been quiet, without a runner."""

import contextlib
import itertools
from types import SimpleNamespace

import pytest
import torch

from evaluator.findings import Code, finding
from evaluator.judge import stages
from evaluator.judge.backend.clock_watch import NO_WATCH
from evaluator.judge.checked_calls import checked_calls
from evaluator.judge.inputs.changing_weights import NO_SITES
from evaluator.judge.runners.runner_pool import POOLED_RUNNERS, RunnerPool
from evaluator.judge.trial import timing_loop
from evaluator.judge.trial.trial_runner import Trial
from evaluator.protocol.frames import Constructed
from evaluator.records import Build, DeviceKind, Fault, SizeName, Status, WeightsRule
from tests import cards


@pytest.fixture
def context():
    """A context whose runners answer nothing; it counts them."""
    trial_runner = SimpleNamespace(look_closely=lambda: None, unproven=lambda: None)

    def load(meanwhile=None):
        if meanwhile is not None:
            meanwhile()

    place = SimpleNamespace(
        load=load, construct=lambda: None, sites=lambda _: NO_SITES, trial_runner=lambda _: trial_runner
    )
    started = []

    @contextlib.contextmanager
    def start(source, build_service):
        started.append(source)
        yield place

    return SimpleNamespace(
        source="",
        right_at=(),
        build_services=SimpleNamespace(for_submission=lambda: None),
        runners=SimpleNamespace(start=start, pool=SimpleNamespace(refill=lambda: None)),
        started=started,
        trial_runner=trial_runner,
        place=place,
        seeds=SimpleNamespace(timed=lambda side: iter(()), proofs=lambda: iter(())),
        call_timeout_s=1.0,
        gpu_session=None,
        begin_side=lambda: NO_WATCH,
    )


def faults(monkeypatch, *codes, medians_ms=(1.0,)):
    """Have a side fail with each of these in turn, and then be measured; those of T306 have samples too."""
    left = [Fault(Status.REJECTED, finding(code, "it worked on")) for code in codes]
    medians = itertools.chain(medians_ms, itertools.repeat(1.0))

    def side(*_, **__):
        samples = cards.samples("submission", next(medians))
        if not left:
            return timing_loop.TimedSide(samples, None)
        late = left[0].finding.code == Code.WORK_AFTER_DONE.value
        return timing_loop.TimedSide(samples if late else None, Trial(None, left.pop(0), 0.0, copied=False))

    monkeypatch.setattr(timing_loop, "side", side)


def test_what_somebody_else_may_have_done_is_no_verdict_before_it_was_seen_three_times(context, monkeypatch):
    faults(monkeypatch, Code.WORK_AFTER_DONE, Code.NOT_QUIET)
    samples, remarks, _ = stages._timed_submission(context, None)
    assert samples.median_ms == 1.0
    assert [(each.code, each.details) for each in remarks] == [("T306", {"attempt": 1}), ("T305", {"attempt": 2})]
    assert len(context.started) == 3
    faults(monkeypatch, Code.WORK_AFTER_DONE, Code.WORK_AFTER_DONE, Code.WORK_AFTER_DONE)
    refused, _, _ = stages._timed_submission(context, None)
    assert (refused.fault.status, refused.fault.finding.code) == (Status.REJECTED, Code.WORK_AFTER_DONE.value)
    assert len(context.started) == 6


@pytest.mark.parametrize("medians_ms", [(3.0, 2.0), (2.0, 3.0)])
def test_nobody_gains_by_failing_a_try(context, monkeypatch, medians_ms):
    faults(monkeypatch, Code.WORK_AFTER_DONE, medians_ms=medians_ms)
    samples, _, _ = stages._timed_submission(context, None)
    assert samples.median_ms == 3.0


def ended_when_looked_at(context, look):
    """Have a bench that may be looked at closely only when its runner has ended, and what `look` gives then."""
    alive = []
    start = context.runners.start

    @contextlib.contextmanager
    def counted(*asked):
        with start(*asked) as place:
            alive.append(place)
            yield place
        alive.pop()

    def closely():
        assert not alive, "what a runner holds of a GPU would decide"
        return look()

    context.runners.start = counted
    context.trial_runner.look_closely = closely


def no_memory():
    raise MemoryError("2 GiB more")


def test_timed_calls_are_looked_at_closely_when_their_runner_has_ended(context, monkeypatch):
    faults(monkeypatch)
    lower = Trial(None, Fault(Status.WRONG_RESULT, finding(Code.LOWER_PRECISION, "in TF32")), 0.0, copied=False)
    ended_when_looked_at(context, lambda: lower)
    refused, _, _ = stages._timed_submission(context, None)
    assert refused.fault == lower.fault
    ended_when_looked_at(context, no_memory)
    samples, remarks, _ = stages._timed_submission(context, None)
    assert samples.median_ms == 1.0
    assert [each.code for each in remarks] == ["C418"]
    assert "2 GiB more" in remarks[0].message


def ready_to_check(context, monkeypatch):
    """Let the context's runners make a single, correct call."""
    right = Trial(cards.check(), None, 0.0, copied=False)
    context.trial_runner.run = lambda *_, **__: right
    context.place.construct = lambda: Constructed(difference=None)
    context.seeds.checks = lambda _: [1]
    options = SimpleNamespace(require_own_kernel=None)
    context.terms = SimpleNamespace(
        device=DeviceKind.CPU,
        gpu=None,
        options=options,
        weights=WeightsRule.CHANGING,
        is_timed=True,
        size=SizeName.FULL,
        further_sizes=(),
    )
    context.reference = SimpleNamespace(weights=SimpleNamespace(exist=False), model=torch.nn.Identity())
    served = SimpleNamespace(units=[], failures=[], built_from="", device_code=[], imports=[])
    context.build_services.for_submission = lambda: served
    monkeypatch.setattr(stages, "_about_values", lambda *_: [])


BUILT = Build(ok=True, import_s=0.0, units=[])
TIMER = SimpleNamespace(begin=lambda: None)


def test_checked_calls_are_looked_at_closely_when_their_runner_has_ended(context, monkeypatch):
    ready_to_check(context, monkeypatch)
    fault = Fault(Status.WRONG_RESULT, finding(Code.LOWER_PRECISION, "in TF32"))
    lower = Trial(cards.check(), fault, 0.0, copied=False)
    ended_when_looked_at(context, lambda: lower)
    assert stages.check(context, TIMER, BUILT).fault == fault
    ended_when_looked_at(context, no_memory)
    passed = stages.check(context, TIMER, BUILT)
    assert passed.fault is None
    assert "C418" in [each.code for each in passed.findings]


@pytest.mark.parametrize(("gpu_session", "refills"), [(None, 0), (object(), 1)])
def test_only_with_a_gpu_do_later_runners_start_beside_a_check(context, monkeypatch, gpu_session, refills):
    ready_to_check(context, monkeypatch)
    context.gpu_session, started = gpu_session, []
    context.runners.pool.refill = lambda: started.append(True)
    assert stages.check(context, TIMER, BUILT).fault is None
    assert len(started) == refills


def test_what_nobody_else_can_have_done_is_seen_once(context, monkeypatch):
    faults(monkeypatch, Code.WRONG_VALUES)
    refused, _, _ = stages._timed_submission(context, None)
    assert refused.fault.finding.code == Code.WRONG_VALUES.value
    assert len(context.started) == 1


HOST = 'load_inline(cpp_sources="x.data_ptr<float>()")'
GPU = HOST + ' load_inline(cuda_sources="k<<<1, 1>>>()")'


@pytest.mark.parametrize(
    ("device", "source", "code", "verdict"),
    [
        (DeviceKind.CUDA, HOST, Code.RUNNER_DIED, Status.INCONCLUSIVE),
        (DeviceKind.CUDA, HOST, Code.CONSTRUCTOR_FAILED, Status.INCONCLUSIVE),
        (DeviceKind.EMULATED, HOST, Code.FORWARD_FAILED, Status.INCONCLUSIVE),
        (DeviceKind.EMULATED, HOST, Code.WRONG_VALUES, Status.WRONG_RESULT),
        (DeviceKind.EMULATED, HOST, Code.TIMED_OUT, Status.TIMEOUT),
        (DeviceKind.CPU, HOST, Code.FORWARD_FAILED, Status.RUNTIME_ERROR),
        (DeviceKind.CUDA, GPU, Code.RUNNER_DIED, Status.RUNTIME_ERROR),
        (DeviceKind.EMULATED, GPU, Code.FORWARD_FAILED, Status.RUNTIME_ERROR),
    ],
)
def test_cpp_for_the_cpu_that_fails_elsewhere_has_no_verdict(context, monkeypatch, device, source, code, verdict):
    context.source, context.terms = source, SimpleNamespace(device=device, size=SizeName.FULL)
    before = {Code.WRONG_VALUES: Status.WRONG_RESULT, Code.TIMED_OUT: Status.TIMEOUT}.get(code, Status.RUNTIME_ERROR)
    context.place.load = lambda **_: Fault(before, finding(code, "it failed", line=3))
    fault = checked_calls(context, context.place).fault
    assert (fault.status, fault.finding.line) == (verdict, 3)
    assert ("--device cpu" in fault.finding.next_step) is (verdict is Status.INCONCLUSIVE)


class Runner:
    """A pooled runner without a process."""

    child = SimpleNamespace(poll_exit=lambda: None)

    def __init__(self):
        self.is_warm = False

    def warm(self, device):
        pass

    def warmed(self, timeout_s):
        self.is_warm = True


def test_each_check_finds_a_warm_runner(context, monkeypatch):
    """Of the four first runners, two are the reference's for all grades of the problem."""
    ready_to_check(context, monkeypatch)
    pool = RunnerPool(Runner, DeviceKind.CUDA, POOLED_RUNNERS)
    warm = {"check": [], "time": []}

    @contextlib.contextmanager
    def start(*_):
        warm["check"].append(pool.take().is_warm)
        yield context.place

    def begin():
        if len(warm["check"]) == 1:
            pool.take()
            pool.take()

    context.runners, context.gpu_session = SimpleNamespace(start=start, pool=pool), object()
    pool.refill(4)
    for _ in range(3):
        assert stages.check(context, SimpleNamespace(begin=begin), BUILT).fault is None
        pool.settle()
        warm["time"].append(pool.take().is_warm)
    assert warm == {"check": [True] * 3, "time": [True] * 3}


@pytest.mark.parametrize(
    ("left_s", "right", "tries"), [(float("inf"), True, 2), (float("inf"), False, 2), (11.0, True, 2), (9.0, True, 1)]
)
def test_wrong_answers_are_tried_with_own_weights_if_time_is_left(monkeypatch, left_s, right, tries):
    """The first try takes 4 s, and did not come to calls of 6 s: the second may take 10 s."""

    def tried(fault, reason):
        called = SimpleNamespace(fault=fault, reason_to_seed=reason, more_s=6.0, may_need_training=False)
        return SimpleNamespace(called=called)

    clock = itertools.count(step=4.0)
    monkeypatch.setattr(stages, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    wrong = tried("wrong", "pairs without a proof")
    made = []
    coming = iter([wrong, tried(None if right else "wrong", None)])
    monkeypatch.setattr(stages, "_checked_calls", lambda *_: made.append(next(coming)) or made[-1])
    context = SimpleNamespace(deadline=SimpleNamespace(left_s=left_s), seeded_because=None)
    assert stages._tried_in_other_ways(context, None) is (made[-1] if right else wrong)
    assert len(made) == tries
    assert context.seeded_because == (wrong.called.reason_to_seed if tries == 2 else None)
