"""How a submission is timed where the GPU may not have been quiet, without a runner."""

import contextlib
import itertools
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.judge import checked_calls as checked_calls_module
from evaluator.judge import stages, timing_stage
from evaluator.judge.checked_calls import checked_calls
from evaluator.judge.clock.gpu_monitor import NO_WATCH
from evaluator.judge.context.reference_timing import After, Reading
from evaluator.judge.reference.changing_weights import NO_SITES
from evaluator.judge.trial import timing_loop
from evaluator.judge.trial.trial import Trial
from evaluator.protocol.frames import Constructed
from evaluator.records import Build, DeviceKind, Fault, SizeName, Status, WeightsRule, cases_of, seed_text
from evaluator.sandbox.time_limit import CpuTime
from tests import cards


@pytest.fixture
def context():
    """A context whose runners answer nothing; it counts them."""
    trial_runner = SimpleNamespace(look_closely=lambda: None, unproven=lambda: None, pace_s=0.0, earlier_weights=[])

    def load(meanwhile=None):
        if meanwhile is not None:
            meanwhile()

    child = SimpleNamespace(cpu_time=lambda: CpuTime(0.0, {}))
    session = SimpleNamespace(child=child, leave=lambda: None)
    place = SimpleNamespace(
        session=session,
        load=load,
        construct=lambda: None,
        sites=lambda _: NO_SITES,
        trial_runner=lambda _: trial_runner,
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
        runners=SimpleNamespace(start=start, pool=SimpleNamespace(begin_refill=lambda: None)),
        started=started,
        trial_runner=trial_runner,
        place=place,
        seeds=SimpleNamespace(timed=lambda side: iter(()), proofs=lambda: iter(())),
        call_timeout_s=1.0,
        gpu_session=None,
        begin_side=lambda: NO_WATCH,
    )


BEFORE = Reading(cards.samples("reference_before", 1.0), None, None)
AFTER = After(cards.samples("reference_after", 1.0), 3.0, 1.01)


def right_runner(context):
    """Give the runner of the checked calls."""
    ends = contextlib.ExitStack()
    place = ends.enter_context(context.runners.start(context.source, None))
    return stages.RightRunner(context.trial_runner, place.session, NO_SITES, ends)


def timed(context):
    """Time the submission in the runner of its checked calls."""
    with contextlib.ExitStack() as ends:
        return timing_stage._timed_submission(context, BEFORE, right_runner(context), ends)


def measured(context, monkeypatch, after=lambda: AFTER, kept=None, *, lives=True):
    """Time the submission beside a reference with these halves; `kept` is that after an earlier submission.

    The runner of the checked calls `lives`, or there is a new one.
    """
    monkeypatch.setattr(timing_stage, "record", lambda *_: None)
    context.terms = SimpleNamespace(gpu=None, weights=WeightsRule.CHANGING)
    context.reference = SimpleNamespace(weights=None)
    timer = SimpleNamespace(after=after, kept_after=kept)
    right = right_runner(context)
    if not lives:
        monkeypatch.setattr(timing_stage, "_new_runner", lambda _: right)
    reference = timing_stage.ReferenceSide(BEFORE, [])
    return timing_stage.measure_both(context, timer, reference, right if lives else None)


@pytest.fixture
def no_second_process(monkeypatch):
    monkeypatch.setattr(timing_stage, "_failure_in_second_process", lambda _: None)


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


def test_a_submission_is_timed_beside_the_references_single_calls(context, monkeypatch):
    """Else no submission would be a clear loser, and each would make twenty single calls."""
    usual_ms = []

    def side(*_, **how):
        usual_ms.append(how["usual_ms"])
        return timing_loop.TimedSide(cards.samples("submission", 1.0), None)

    monkeypatch.setattr(timing_loop, "side", side)
    timed(context)
    assert usual_ms == [cards.samples("reference_before", 1.0).median_ms]


def test_shared_headers_are_made_before_a_build_and_outside_its_time():
    did = []
    service = SimpleNamespace(failures=[], waited_s=0.0, units=[])
    context = SimpleNamespace(
        make_headers=lambda: did.append("headers"),
        build_services=SimpleNamespace(for_submission=lambda: did.append("service") or service),
        runners=SimpleNamespace(import_submission=lambda _: did.append("import")),
    )
    assert stages.build(context).build.ok
    assert did == ["headers", "service", "import"]


def test_what_somebody_else_may_have_done_is_no_verdict_before_it_was_seen_three_times(context, monkeypatch):
    faults(monkeypatch, Code.WORK_AFTER_DONE, Code.NOT_QUIET)
    right = timed(context)
    assert right.samples.median_ms == 1.0
    assert [(each.code, each.details) for each in right.remarks] == [("T306", {"attempt": 1}), ("T305", {"attempt": 2})]
    assert len(context.started) == 3
    faults(monkeypatch, Code.WORK_AFTER_DONE, Code.WORK_AFTER_DONE, Code.WORK_AFTER_DONE)
    refused = timed(context)
    assert (refused.fault.status, refused.fault.finding.code) == (Status.REJECTED, Code.WORK_AFTER_DONE.value)
    assert len(context.started) == 6
    faults(monkeypatch, Code.WRONG_VALUES)  # Nobody else can have done this.
    assert timed(context).fault.finding.code == Code.WRONG_VALUES.value
    assert len(context.started) == 7


@pytest.mark.parametrize("medians_ms", [(3.0, 2.0), (2.0, 3.0)])
def test_nobody_gains_by_failing_a_try(context, monkeypatch, medians_ms):
    faults(monkeypatch, Code.WORK_AFTER_DONE, medians_ms=medians_ms)
    assert timed(context).samples.median_ms == 3.0


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


@pytest.mark.usefixtures("no_second_process")
def test_timed_calls_are_looked_at_closely_when_their_runner_has_ended(context, monkeypatch):
    faults(monkeypatch)
    lower = Trial(None, Fault(Status.WRONG_RESULT, finding(Code.LOWER_PRECISION, "in TF32")), 0.0, copied=False)
    ended_when_looked_at(context, lambda: lower)
    assert measured(context, monkeypatch).fault == lower.fault
    ended_when_looked_at(context, no_memory)
    right = measured(context, monkeypatch)
    assert right.timing.submission_median_ms == 1.0
    (remark,) = (each for each in right.findings if each.code == "C418")
    assert "2 GiB more" in remark.message


@pytest.mark.usefixtures("no_second_process")
@pytest.mark.parametrize("drifted", [False, True])
def test_intervals_are_computed_while_the_runner_exits_and_the_reference_waits_for_its_end(
    context, monkeypatch, drifted
):
    did = []
    faults(monkeypatch)
    context.place.session.leave = lambda: did.append("leave")
    start, quote = context.runners.start, timing_stage.quote

    @contextlib.contextmanager
    def ending(*asked):
        with start(*asked) as place:
            yield place
        did.append("ended")

    def quoted(*sides):
        did.append("quote")
        return quote(*sides)

    def after():
        did.append("probe")
        return After(cards.samples("reference_after", 2.0), 3.0, 2.0) if drifted else AFTER

    context.runners.start = ending
    monkeypatch.setattr(timing_stage, "quote", quoted)
    outcome = measured(context, monkeypatch, after, kept=AFTER.samples)
    assert did == ["leave", "quote", "ended", "probe", *(["quote"] if drifted else [])]
    assert outcome.timing.reference_after.median_ms == (2.0 if drifted else 1.0)


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
        problem=SimpleNamespace(cases=cases_of({SizeName.FULL: {}})),
    )
    context.backend, context.sandbox = SimpleNamespace(room_for=lambda _: True), SimpleNamespace(layers=[FREEZE])
    context.reference = SimpleNamespace(
        weights=SimpleNamespace(exist=False), model=torch.nn.Identity(), draws_numbers=False, author_check=None
    )
    served = SimpleNamespace(units=[], failures=[], built_from="", device_code=[], imports=[])
    context.build_services.for_submission = lambda: served
    monkeypatch.setattr(stages, "_about_values", lambda *_: [])
    monkeypatch.setattr(checked_calls_module, "has_many_answers", lambda _: False)


FREEZE = "atomic-freeze"
BUILT = Build(ok=True, import_s=0.0, units=[])


def test_checked_calls_are_looked_at_closely_when_their_runner_has_ended(context, monkeypatch):
    ready_to_check(context, monkeypatch)
    context.terms.is_timed = False
    context.seeds.more_checks = lambda *_: []
    fault = Fault(Status.WRONG_RESULT, finding(Code.LOWER_PRECISION, "in TF32"))
    lower = Trial(cards.check(), fault, 0.0, copied=False)
    ended_when_looked_at(context, lambda: lower)
    assert stages.check(context, BUILT, contextlib.ExitStack()).fault == fault
    ended_when_looked_at(context, no_memory)
    passed = stages.check(context, BUILT, contextlib.ExitStack())
    assert passed.fault is None
    assert "C418" in [each.code for each in passed.findings]


@pytest.mark.parametrize(("gpu_session", "refills"), [(None, 0), (object(), 1)])
def test_only_with_a_gpu_do_later_runners_start_beside_a_check(context, monkeypatch, gpu_session, refills):
    ready_to_check(context, monkeypatch)
    context.gpu_session, started = gpu_session, []
    context.runners.pool.begin_refill = lambda: started.append(True)
    assert stages.check(context, BUILT, contextlib.ExitStack()).fault is None
    assert len(started) == refills


def test_a_failed_call_takes_the_place_of_its_check_or_comes_last():
    checks = [replace(cards.check(), index=index, seed=seed_text(index)) for index in range(3)]
    failed = replace(checks[1], ok=False)
    assert stages.with_check(checks, failed) == [checks[0], failed, checks[2]]
    other = replace(failed, seed=seed_text(9))  # Of a second process.
    assert stages.with_check(checks, other) == [*checks, other]
    assert stages.with_check(checks, None) == checks


@pytest.mark.parametrize("lives", [True, False])
def test_a_submission_timed_in_a_second_process_needs_no_third(context, monkeypatch, lives):
    asked = []
    monkeypatch.setattr(timing_stage, "_failure_in_second_process", lambda _: asked.append(True))
    faults(monkeypatch)
    timed = measured(context, monkeypatch, lives=lives)
    assert len(asked) == lives
    assert (timed.timing.reference_age_s, timed.timing.drift_probe_ms) == (3.0, 1.01)


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


@pytest.mark.parametrize(
    ("is_timed", "gpu", "room", "layers", "share", "lives"),
    [
        (True, None, True, [FREEZE], None, True),
        (True, None, False, [FREEZE], None, False),
        (True, None, True, [], None, False),
        (True, "a GPU", False, [], None, True),
        (True, "a GPU", True, [FREEZE], 0.5, False),
        (False, None, True, [FREEZE], None, False),
    ],
)
def test_a_runner_with_right_answers_lives_on_to_be_timed(
    context, monkeypatch, is_timed, gpu, room, layers, share, lives
):
    """On a CPU, the reference is measured beside its stopped processes."""
    ready_to_check(context, monkeypatch)
    context.sandbox.layers, context.terms.options.require_own_kernel = layers, share
    context.terms.is_timed, context.seeds.more_checks = is_timed, lambda *_: []
    context.terms.gpu, context.backend.room_for = gpu, lambda _: room
    monkeypatch.setattr(stages, "read_kernels", lambda *_: None)
    alive, ends = [], contextlib.ExitStack()

    @contextlib.contextmanager
    def start(*_):
        alive.append(True)
        yield context.place
        alive.pop()

    context.runners.start = start
    checked = stages.check(context, BUILT, ends)
    assert (checked.right is not None, alive) == ((True, [True]) if lives else (False, []))
    ends.close()
    assert alive == []


@pytest.mark.parametrize(
    ("strict", "is_drawn", "right", "calls"),
    [
        (False, False, False, 0),
        (False, True, False, 1),
        (False, True, True, timing_stage._SECOND_CALLS),  # By lot, it proves nothing again.
        (True, False, False, 1),
        (True, False, True, 9 + 8),
    ],
)
def test_a_second_process_must_be_right_too(context, monkeypatch, strict, is_drawn, right, calls):
    """In one grade of ten, and in strict ones."""
    ready_to_check(context, monkeypatch)
    context.terms.options = SimpleNamespace(strict=strict)
    wrong = Fault(Status.WRONG_RESULT, finding(Code.WRONG_VALUES, "1 of 9"))
    made = []
    context.seeds.checks, context.seeds.proofs = lambda _: list(range(9)), lambda: iter(range(8))
    context.trial_runner.lacks_proof = True
    context.trial_runner.run = lambda *_, **__: (
        made.append(1) or Trial(cards.check(), None if right else wrong, 0.0, copied=False)
    )
    monkeypatch.setattr(checked_calls_module, "retried", lambda _, trial, *__, **___: (trial.fault, None))
    monkeypatch.setattr(timing_stage, "_is_drawn", lambda: is_drawn)
    failed = timing_stage._failure_in_second_process(context)
    assert (len(context.started), len(made)) == (calls > 0, calls)
    assert (failed is None) is (right or not calls)
    assert failed is None or failed.fault.finding.message == "right in one process, and not in a second: 1 of 9"
