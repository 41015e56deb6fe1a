"""What of a grade comes first: the cheapest rejection, unless nothing is left to compile."""

from types import SimpleNamespace

import pytest

from evaluator.findings import Code, finding
from evaluator.grade_options import GradeOptions
from evaluator.judge import stages, timing_stage, verdict
from evaluator.judge.context import runner_factory
from evaluator.judge.context.runner_factory import RunnerFactory
from evaluator.judge.exhibits.own_kernels import OwnKernelEvidence
from evaluator.judge.exhibits.roofline_check import RooflineOutcome
from evaluator.lint.messages import LookedAt
from evaluator.progress import Silent, Stopwatch
from evaluator.records import (
    Build,
    DeviceKind,
    Fault,
    Formats,
    GradeMode,
    L2Inputs,
    L2Rule,
    MachineCode,
    Outcome,
    Precision,
    RunnerOutput,
    Status,
)
from tests import cards
from tests.unit.compile.test_sass import recorded

WRONG_BUILD = stages.BuildOutcome(
    Build(ok=False, import_s=0.0, units=[]), Fault(Status.BUILD_ERROR, finding(Code.COMPILE_FAILED, "no"))
)
BUILT = stages.BuildOutcome(Build(ok=True, import_s=0.0, units=[]), None)
OUTPUT = RunnerOutput(total_bytes=0, text="")


@pytest.mark.parametrize("early", [False, True])
def test_a_problem_is_set_up_before_the_build_only_where_nothing_is_left_to_compile(monkeypatch, early):
    done = []
    context = SimpleNamespace(
        terms=SimpleNamespace(options=SimpleNamespace(strict=False)),
        gpu_session=SimpleNamespace(reach=lambda: done.append("reach")),
        may_set_up_early=lambda: early,
        set_up_early=lambda: done.append("problem"),
        lint=lambda: done.append("lint") or LookedAt([]),
        sandbox=None,
        output=OUTPUT,
    )
    monkeypatch.setattr(stages, "build", lambda _: done.append("build") or WRONG_BUILD)
    watch = Stopwatch(Silent())
    assert verdict.judge(context, None, watch).status is Status.BUILD_ERROR
    assert done == ["reach", *(["problem"] if early else []), "lint", "build"]
    assert ("device" in watch.stages_s) is early


@pytest.mark.parametrize("built", [BUILT, WRONG_BUILD], ids=["built", "not built"])
def test_before_a_gpu_is_there_all_builds_are_made_and_their_machine_code_is_read(monkeypatch, built):
    done = []
    context = SimpleNamespace(
        terms=SimpleNamespace(options=SimpleNamespace(strict=False), gpu="a GPU"),
        build_ahead=lambda: done.append("build ahead"),
        build_services=SimpleNamespace(machine_code=lambda: done.append("machine code")),
        lint=lambda: LookedAt([]),
        sandbox=None,
        output=OUTPUT,
    )
    monkeypatch.setattr(stages, "build", lambda _: built)
    verdict.begin(context, Stopwatch(Silent()))
    assert done == (["build ahead", "machine code"] if built is BUILT else [])


class Client:
    """The client of a runner outside of the pool, which only loads."""

    read_by = ()

    def __init__(self, child, build_service):
        self._spawned = child
        self.child = SimpleNamespace(kill=lambda: None, output=lambda: None)

    def load(self, frame, descriptors, *, timeout_s):
        Client.read_by = (self._spawned, frame, timeout_s)

    def under(self, deadline, *, is_submission, in_cpu_time):
        """It has a deadline, which ends nothing here."""

    def farewell(self):
        """Nothing was printed."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_a_submission_for_a_gpu_is_imported_by_no_runner_of_the_pool(monkeypatch):
    monkeypatch.setattr(runner_factory, "RunnerClient", Client)
    monkeypatch.setattr(runner_factory, "load_frame", lambda *_: "a frame")
    terms = SimpleNamespace(gpu="a GPU", options=SimpleNamespace(timeout_s=7.0))
    fork_server = SimpleNamespace(spawn=lambda entry: ("spawned", entry))
    runners = RunnerFactory(SimpleNamespace(source="", terms=terms), fork_server, SimpleNamespace(runner_pool=None))
    assert runners.import_submission(None) is None
    assert Client.read_by == (("spawned", runner_factory.RUNNER), "a frame", 7.0)


@pytest.fixture
def stages_of(monkeypatch):
    """Run `finish` with stages that only note their names, and fail from the one called `failing` on."""

    def run(
        device, failing=None, *, required=None, profile=None, machine_code=None, mode=GradeMode.FULL, settled=False
    ):
        done = []

        def noted(name, result=lambda *_: None):
            return lambda *given: done.append(name) or result(*given)

        def fault(name):
            done.append(name)
            return Fault(Status.REJECTED, finding(Code.WRONG_VALUES, name)) if name == failing else None

        timing = cards.card().timing
        for module, name, stage in (
            (timing_stage, "measure_reference", noted("reference", lambda *_: timing_stage.ReferenceSide(None, []))),
            (stages, "check", lambda *_: stages.CheckOutcome(BUILT.build, [], fault("check"), [LATER], EVIDENCE, None)),
            (stages, "own_kernel_evidence", noted("own kernels", lambda _, evidence: evidence)),
            (timing_stage, "measure_both", lambda *_: timing_stage.TimeOutcome(timing, None, fault("time"), [])),
            (verdict, "check_roofline", lambda *_: RooflineOutcome(None, fault("roofline"), [])),
            (verdict, "profiling", noted("profile")),
            (verdict, "needed_alone", lambda _, profile: profile),
            (verdict, "own_kernels", lambda _: None),
        ):
            monkeypatch.setattr(module, name, stage)
        on_gpu = device is DeviceKind.CUDA
        known = [timing, None] if failing == "check" else [timing]
        monitor = SimpleNamespace(facts=lambda: None, findings=lambda timing: [LAST] if timing in known else [])
        settles = (noted("settle"), noted("settle reference")) if settled else (lambda: None,) * 2
        context = SimpleNamespace(
            terms=SimpleNamespace(
                device=device,
                gpu="a GPU" if on_gpu else None,
                options=SimpleNamespace(require_own_kernel=required, profile=profile, mode=mode),
                is_timed=GradeOptions(device, mode=mode).is_timed,
                problem=SimpleNamespace(precision=Precision.FP32, formats=Formats(), cases={"full": None}),
                cases=("full",),
                draws_hidden=False,
            ),
            build_services=SimpleNamespace(machine_code=noted("machine code", lambda: machine_code)),
            gpu_session=SimpleNamespace(monitor=monitor) if on_gpu else None,
            take_device=noted("device"),
            settle=settles[0],
            warm_idle_runners=noted("idle runners"),
            sandbox=None,
            backend=SimpleNamespace(l2=L2Inputs(rule=L2Rule.WARM)),
            output=OUTPUT,
        )
        timer = SimpleNamespace(settle=settles[1])
        outcome = verdict.finish(context, timer, Outcome(build=BUILT.build, findings=[FIRST]), Stopwatch(Silent()))
        assert done.pop() == "machine code"  # Of builds that a call asked for.
        assert done.pop() == "idle runners", "no context may be made beside a timing"
        return outcome, done

    return run


EVIDENCE = OwnKernelEvidence(DeviceKind.CUDA, None, 0, "", None)
FIRST, LATER, LAST = (finding(Code.WIDE_TOLERANCE, text) for text in ("of the lint", "of a check", "of the monitor"))
WHOLE = ["device", "reference", "check", "machine code", "time", "roofline", "profile"]


@pytest.mark.parametrize("device", DeviceKind)
def test_mode_check_has_no_clock_and_says_so(stages_of, device):
    outcome, done = stages_of(device, mode=GradeMode.CHECK)
    assert outcome.status is Status.CORRECT
    assert not {"time", "roofline", "profile"} & set(done)
    assert (outcome.timing, outcome.l2, outcome.roofline) == (None, None, None)
    assert [each.code for each in outcome.findings].count(Code.NOT_TIMED) == 1


def test_mode_check_still_requires_own_kernels(stages_of):
    _, done = stages_of(DeviceKind.CUDA, mode=GradeMode.CHECK, required=0.5)
    assert done == ["device", "check", "machine code", "own kernels", "profile"]


def test_before_each_stage_that_needs_the_device_alone_all_other_work_has_ended(stages_of):
    quiet = ["settle", "settle reference"]
    done = stages_of(DeviceKind.CUDA, profile="torch", settled=True)[1]
    before = ["device", "reference", "check", "machine code"]  # The reference's timer settles other work itself.
    assert done == [*before, *quiet, "time", *quiet, "roofline", *quiet, "profile"]
    done = stages_of(DeviceKind.CUDA, mode=GradeMode.CHECK, settled=True)[1]
    assert done == ["device", "check", "machine code"]


@pytest.mark.parametrize("failing", [None, "check", "time", "roofline"])
def test_a_stage_that_fails_is_the_last(stages_of, failing):
    outcome, done = stages_of(DeviceKind.CUDA, failing, profile="torch")
    last = "machine code" if failing == "check" else failing
    assert done == WHOLE[: None if last is None else WHOLE.index(last) + 1]
    assert outcome.status is (Status.CORRECT if failing is None else Status.REJECTED)
    assert outcome.findings == [LATER, FIRST, LAST]
    assert outcome.l2 == (None if failing == "check" else L2Inputs(rule=L2Rule.WARM))


@pytest.mark.parametrize(
    ("device", "done"),
    [
        (DeviceKind.CPU, ["check", "machine code", "reference", "time", "profile"]),
        (DeviceKind.EMULATED, ["check", "machine code"]),
    ],
)
def test_a_device_has_the_stages_that_mean_something_on_it(stages_of, device, done):
    assert stages_of(device, profile="torch")[1] == done


def test_nothing_is_profiled_unasked_and_an_unknown_share_is_not_correct(stages_of):
    assert stages_of(DeviceKind.CUDA)[1] == WHOLE[:-1]
    outcome, done = stages_of(DeviceKind.CUDA, required=0.5)
    assert done == [*WHOLE[:4], "own kernels", *WHOLE[4:]]  # On a GPU only a profile shows the share.
    assert (outcome.status, outcome.reason.code) == (Status.INCONCLUSIVE, Code.OWN_SHARE_UNKNOWN.value)


def test_instructions_of_fewer_bits_are_a_finding_and_no_verdict(stages_of):
    code = recorded("tensor_cores")
    outcome, _ = stages_of(DeviceKind.CUDA, machine_code=code)
    assert (outcome.status, outcome.reason, outcome.machine_code) == (Status.CORRECT, None, code)
    assert [each.code for each in outcome.findings].count(Code.REDUCED_INSTRUCTIONS.value) == 1
    outcome, _ = stages_of(DeviceKind.CUDA, "check", machine_code=code)
    assert outcome.status is Status.REJECTED
    assert Code.REDUCED_INSTRUCTIONS.value in [each.code for each in outcome.findings]
    outcome, _ = stages_of(DeviceKind.CUDA, machine_code=MachineCode(not_looked_at="cuobjdump not found"))
    assert (outcome.status, outcome.findings) == (Status.CORRECT, [LATER, FIRST, LAST])
