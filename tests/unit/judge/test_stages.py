"""The check and the timing of a submission, without a runner."""

import contextlib
import itertools
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.judge import checked_calls as checked_calls_module
from evaluator.judge import stages, timing_stage
from evaluator.judge.checked_calls import checked_calls
from evaluator.judge.context.reference_timing import After
from evaluator.judge.trial import timing_loop
from evaluator.judge.trial.trial import Trial
from evaluator.records import DeviceKind, Fault, GradeMode, Status, seed_text
from tests import cards
from tests.unit.judge.grades import AFTER, BEFORE, FREEZE, RIGHT, Grade, terms


@pytest.fixture
def grade(monkeypatch):
    """A grade that draws no lot for a second process."""
    monkeypatch.setattr(timing_stage, "secrets", SimpleNamespace(randbelow=lambda _: 1))
    monkeypatch.setattr(checked_calls_module, "has_many_answers", lambda _: False)
    return Grade()


@pytest.fixture
def sides(monkeypatch):
    """Have a side fail with each of these codes in turn, and then be measured; those of T306 have samples too."""

    def fail(*codes, medians_ms=(1.0,)):
        left = [Fault(Status.REJECTED, finding(code, "it worked on")) for code in codes]
        medians, usual_ms = itertools.chain(medians_ms, itertools.repeat(1.0)), []

        def side(*_, **how):
            usual_ms.append(how["usual_ms"])
            samples = cards.samples("submission", next(medians))
            if not left:
                return timing_loop.TimedSide(samples, None)
            late = left[0].finding.code == Code.WORK_AFTER_DONE.value
            return timing_loop.TimedSide(samples if late else None, Trial(None, left.pop(0), 0.0, copied=False))

        monkeypatch.setattr(timing_loop, "side", side)
        return usual_ms

    return fail


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


def test_what_somebody_else_may_have_done_is_no_verdict_before_it_was_seen_three_times(grade, sides):
    usual_ms = sides(Code.WORK_AFTER_DONE, Code.NOT_QUIET)
    right = grade.timed()
    assert right.timing.submission_median_ms == 1.0
    remarks = [(each.code, each.details) for each in right.findings if "attempt" in each.details]
    assert remarks == [("T306", {"attempt": 1}), ("T305", {"attempt": 2})]
    assert grade.started == 3
    # Else no submission would be a clear loser, and each would make twenty single calls.
    assert usual_ms == [BEFORE.samples.median_ms] * 3
    sides(Code.WORK_AFTER_DONE, Code.WORK_AFTER_DONE, Code.WORK_AFTER_DONE)
    refused = grade.timed()
    assert (refused.fault.status, refused.fault.finding.code) == (Status.REJECTED, Code.WORK_AFTER_DONE.value)
    assert grade.started == 6
    sides(Code.WRONG_VALUES)  # Nobody else can have done this.
    assert grade.timed().fault.finding.code == Code.WRONG_VALUES.value
    assert grade.started == 7


@pytest.mark.parametrize("medians_ms", [(3.0, 2.0), (2.0, 3.0)])
def test_nobody_gains_by_failing_a_try(grade, sides, medians_ms):
    sides(Code.WORK_AFTER_DONE, medians_ms=medians_ms)
    assert grade.timed().timing.submission_median_ms == 3.0


LOWER = Fault(Status.WRONG_RESULT, finding(Code.LOWER_PRECISION, "in TF32"))


def no_memory():
    raise MemoryError("2 GiB more")


@pytest.mark.parametrize("stage", ["timed", "checked"])
def test_calls_are_looked_at_closely_when_their_runner_has_ended(grade, sides, stage):
    sides()
    grade.terms = terms(mode=GradeMode.FULL if stage == "timed" else GradeMode.CHECK)
    grade.looked_at_closely(lambda: Trial(cards.check(), LOWER, 0.0, copied=False))
    assert getattr(grade, stage)().fault == LOWER
    grade.looked_at_closely(no_memory)
    passed = getattr(grade, stage)()
    assert passed.fault is None
    (remark,) = (each for each in passed.findings if each.code == "C418")
    assert "2 GiB more" in remark.message


@pytest.mark.parametrize("drifted", [False, True])
def test_intervals_are_computed_while_the_runner_exits_and_the_reference_waits_for_its_end(
    grade, sides, monkeypatch, drifted
):
    sides()
    quote = timing_stage.quote
    monkeypatch.setattr(timing_stage, "quote", lambda *given: grade.did.append("quote") or quote(*given))

    def after():
        grade.did.append("probe")
        return After(cards.samples("reference_after", 2.0), 3.0, 2.0) if drifted else AFTER

    outcome = grade.timed(after, kept=AFTER.samples)
    assert grade.did == ["leave", "quote", "ended", "probe", *(["quote"] if drifted else [])]
    assert outcome.timing.reference_after.median_ms == (2.0 if drifted else 1.0)


@pytest.mark.parametrize(("gpu_session", "refills"), [(None, 0), (object(), 1)])
def test_only_with_a_gpu_do_later_runners_start_beside_a_check(grade, gpu_session, refills):
    grade.gpu_session = gpu_session
    assert grade.checked().fault is None
    assert grade.did.count("refill") == refills


def test_a_failed_call_takes_the_place_of_its_check_or_comes_last():
    checks = [replace(cards.check(), index=index, seed=seed_text(index)) for index in range(3)]
    failed = replace(checks[1], ok=False)
    assert stages.with_check(checks, failed) == [checks[0], failed, checks[2]]
    other = replace(failed, seed=seed_text(9))  # Of a second process.
    assert stages.with_check(checks, other) == [*checks, other]
    assert stages.with_check(checks, None) == checks


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
def test_cpp_for_the_cpu_that_fails_elsewhere_has_no_verdict(grade, device, source, code, verdict):
    grade.source, grade.terms = source, terms(device)
    before = {Code.WRONG_VALUES: Status.WRONG_RESULT, Code.TIMED_OUT: Status.TIMEOUT}.get(code, Status.RUNTIME_ERROR)
    grade.place.load = lambda **_: Fault(before, finding(code, "it failed", line=3))
    fault = checked_calls(grade, grade.place).fault
    assert (fault.status, fault.finding.line) == (verdict, 3)
    assert ("--device cpu" in fault.finding.next_step) is (verdict is Status.INCONCLUSIVE)


@pytest.mark.parametrize(
    ("options", "room", "layers", "lives"),
    [
        ({}, True, [FREEZE], True),
        ({}, False, [FREEZE], False),
        ({}, True, [], False),
        ({"device": DeviceKind.CUDA}, False, [], True),
        ({"device": DeviceKind.CUDA, "require_own_kernel": 0.5}, True, [FREEZE], False),
        ({"mode": GradeMode.CHECK}, True, [FREEZE], False),
    ],
)
def test_a_runner_with_right_answers_lives_on_to_be_timed(grade, options, room, layers, lives):
    """On a CPU, the reference is measured beside its stopped processes."""
    grade.terms, grade.sandbox.layers, grade.backend.room_for = terms(**options), layers, lambda _: room
    ends = contextlib.ExitStack()
    checked = grade.checked(ends)
    assert (checked.right is not None, grade.alive) == (lives, lives)
    ends.close()
    assert grade.alive == 0


@pytest.mark.parametrize(
    ("strict", "is_drawn", "right", "calls"),
    [
        (False, False, False, 0),
        (False, True, False, 1),
        (False, True, True, 4),  # By lot, it proves nothing again.
        (True, False, False, 1),
        (True, False, True, 9 + 8),
    ],
)
@pytest.mark.parametrize("lives", [True, False])
def test_a_second_process_must_be_right_too(grade, sides, monkeypatch, strict, is_drawn, right, calls, lives):
    """In one grade of ten, and in strict ones. A submission timed in a second process needs no third."""
    sides()
    grade.terms = terms(strict=strict)
    wrong = Trial(cards.check(), Fault(Status.WRONG_RESULT, finding(Code.WRONG_VALUES, "1 of 9")), 0.0, copied=False)
    made = []
    grade.seeds.checks, grade.seeds.proofs = lambda _: list(range(9)), lambda: iter(range(8))
    grade.trial_runner.lacks_proof = True
    grade.trial_runner.run = lambda *_, **__: made.append(1) or (RIGHT if right else wrong)
    monkeypatch.setattr(checked_calls_module, "retried", lambda _, trial, *__, **___: (trial.fault, None))
    monkeypatch.setattr(timing_stage, "secrets", SimpleNamespace(randbelow=lambda _: 0 if is_drawn else 1))
    timed = grade.timed(lives=lives)
    calls = calls if lives else 0
    assert (grade.started, len(made)) == (1 + (calls > 0), calls)
    if right or not calls:
        assert (timed.timing.reference_age_s, timed.timing.drift_probe_ms) == (3.0, 1.01)
    else:
        assert timed.fault.finding.message == "right in one process, and not in a second: 1 of 9"
