"""What of a grade comes first: the cheapest rejection, unless nothing is left to compile."""

import contextlib
from types import SimpleNamespace

import pytest

from evaluator.findings import Code, finding
from evaluator.grade_options import GradeOptions
from evaluator.judge import stages, timing_stage, verdict
from evaluator.judge.context import grade_context, runner_factory
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.context.runner_factory import RunnerFactory
from evaluator.judge.exhibits.own_kernels import OwnKernelEvidence
from evaluator.judge.exhibits.roofline_check import RooflineOutcome
from evaluator.judge.reference.changing_weights import NO_SITES
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
        output=None,
    )

    def build(_):
        done.append("build")
        refused = Fault(Status.BUILD_ERROR, finding(Code.COMPILE_FAILED, "no"))
        return stages.BuildOutcome(Build(ok=False, import_s=0.0, units=[]), refused)

    monkeypatch.setattr(stages, "build", build)
    watch = Stopwatch(Silent())
    assert verdict.judge(context, None, watch).status is Status.BUILD_ERROR
    assert done == ["reach", *(["problem"] if early else []), "lint", "build"]
    assert ("device" in watch.stages_s) is early


class Session:
    """A GPU session that records its calls."""

    def __init__(self, *, usable=True):
        self.asked = []
        self._usable = usable

    @contextlib.contextmanager
    def kept(self):
        self.asked.append("kept")
        yield self._usable
        self.asked.append("released")

    def settle(self):
        self.asked.append("settle")

    def start_monitor(self):
        self.asked.append("monitor")


def context_with(gpu_session, *, speculative_build=None, setup=None):
    return SimpleNamespace(
        terms=SimpleNamespace(problem="a problem", size="full", gpu="a GPU"),
        gpu_session=gpu_session,
        setup=SimpleNamespace(judge_bytes=7),
        _speculative_build=speculative_build,
        _setup=setup,
        _set_up=lambda: gpu_session.asked.append("set up"),
    )


@pytest.mark.parametrize(
    ("speculative_build", "setup", "asked"),
    [
        ("a build", None, ["settle", "set up", 7]),
        ("a build", "early", ["settle", 7]),
        (None, None, ["settle", "set up", 7]),
        (None, "kept", ["settle", "monitor", 7]),  # Of the submission before.
    ],
)
def test_a_problem_is_set_up_once_and_each_submission_has_a_monitor(monkeypatch, speculative_build, setup, asked):
    """And before each the judge has its memory: the roofline of the one before gave it back."""
    gpu_session = Session()
    monkeypatch.setattr(grade_context, "keep_memory", gpu_session.asked.append)
    GradeContext.take_device(context_with(gpu_session, speculative_build=speculative_build, setup=setup))
    assert gpu_session.asked == asked


@pytest.mark.parametrize(("usable", "asked"), [(True, ["kept", "set up", "released"]), (False, ["kept", "released"])])
def test_the_gpu_is_kept_as_long_as_a_problem_is_set_up_on_it(usable, asked):
    gpu_session = Session(usable=usable)
    GradeContext.set_up_early(context_with(gpu_session))
    assert gpu_session.asked == asked


@pytest.mark.parametrize("has_built", [True, False])
def test_nothing_is_set_up_early_while_something_is_compiled(has_built):
    context = context_with(Session(), speculative_build=SimpleNamespace(has_built=lambda: has_built))
    assert GradeContext.may_set_up_early(context) is has_built


@pytest.mark.parametrize("missing", ["_speculative_build", "gpu_session"])
def test_nor_where_nothing_was_begun_early_or_there_is_no_gpu(missing):
    context = context_with(Session(), speculative_build=SimpleNamespace(has_built=lambda: True))
    setattr(context, missing, None)
    assert not GradeContext.may_set_up_early(context)


def test_a_submission_for_a_gpu_is_imported_by_no_runner_of_the_pool(monkeypatch):
    read_by = []

    class Client:
        def __init__(self, child, build_service):
            self.child = SimpleNamespace(kill=lambda: None, output=lambda: None)
            self._spawned = child

        def load(self, frame, descriptors, *, timeout_s):
            read_by.append((self._spawned, frame, timeout_s))

        def under(self, deadline, *, is_submission, in_cpu_time):
            """It has a deadline, which ends nothing here."""

        def farewell(self):
            """Nothing was printed."""

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(runner_factory, "RunnerClient", Client)
    monkeypatch.setattr(runner_factory, "load_frame", lambda *_: "a frame")
    terms = SimpleNamespace(gpu="a GPU", options=SimpleNamespace(timeout_s=7.0))
    fork_server = SimpleNamespace(spawn=lambda entry: ("spawned", entry))
    runners = RunnerFactory(SimpleNamespace(source="", terms=terms), fork_server, SimpleNamespace(runner_pool=None))
    assert runners.import_submission(None) is None
    assert read_by == [(("spawned", runner_factory.RUNNER), "a frame", 7.0)]


@pytest.fixture
def stages_of(monkeypatch):
    """Run `finish` with stages that only note their names, and fail from the one called `failing` on."""

    def run(
        device, failing=None, *, required=None, profile=None, machine_code=None, mode=GradeMode.FULL, settled=False
    ):
        done = []

        def fault(name):
            done.append(name)
            return Fault(Status.REJECTED, finding(Code.WRONG_VALUES, name)) if name == failing else None

        def check(*_):
            return stages.CheckOutcome(built.build, [], fault("check"), [LATER], EVIDENCE, None, RIGHT)

        def measure_reference(*_):
            done.append("reference")

            return timing_stage.ReferenceSide(None, [])

        def own_kernel_evidence(_, evidence):
            done.append("own kernels")
            return evidence

        def check_roofline(*_):
            return RooflineOutcome(None, fault("roofline"), [])

        def profiling(_):
            done.append("profile")

        def read_machine_code():
            done.append("machine code")
            return machine_code

        monkeypatch.setattr(
            timing_stage,
            "measure_both",
            lambda *_: timing_stage.TimeOutcome(cards.card().timing, None, fault("time"), []),
        )
        monkeypatch.setattr(stages, "check", check)
        monkeypatch.setattr(timing_stage, "measure_reference", measure_reference)
        monkeypatch.setattr(stages, "own_kernel_evidence", own_kernel_evidence)
        monkeypatch.setattr(verdict, "check_roofline", check_roofline)
        monkeypatch.setattr(verdict, "profiling", profiling)
        monkeypatch.setattr(verdict, "needed_alone", lambda _, profile: profile)
        monkeypatch.setattr(verdict, "own_kernels", lambda _: None)
        on_gpu = device is DeviceKind.CUDA
        monitor = SimpleNamespace(facts=lambda: None, findings=lambda timing: [LAST] if timing in known else [])
        known = [cards.card().timing, None] if failing == "check" else [cards.card().timing]
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
            build_services=SimpleNamespace(machine_code=read_machine_code),
            gpu_session=SimpleNamespace(monitor=monitor) if on_gpu else None,
            take_device=lambda: done.append("device"),
            settle=lambda: done.append("settle") if settled else None,
            warm_idle_runners=lambda: done.append("idle runners"),
            sandbox=None,
            backend=SimpleNamespace(l2=L2Inputs(rule=L2Rule.WARM)),
            output=RunnerOutput(total_bytes=0, text=""),
        )
        built = Outcome(build=Build(ok=True, import_s=0.0, units=[]), findings=[FIRST])
        timer = SimpleNamespace(settle=lambda: done.append("settle reference") if settled else None)
        outcome = verdict.finish(context, timer, built, Stopwatch(Silent()))
        assert done.pop() == "machine code"  # Of builds that a call asked for.
        assert done.pop() == "idle runners", "no context may be made beside a timing"
        return outcome, done

    return run


EVIDENCE = OwnKernelEvidence(DeviceKind.CUDA, None, 0, "", None)
FIRST, LATER, LAST = (finding(Code.WIDE_TOLERANCE, text) for text in ("of the lint", "of a check", "of the monitor"))
RIGHT = stages.RightRunner(None, None, NO_SITES, contextlib.ExitStack())
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
    outcome, _ = stages_of(DeviceKind.CUDA, machine_code=MachineCode(not_looked_at="cuobjdump not found"))
    assert (outcome.status, outcome.findings) == (Status.CORRECT, [LATER, FIRST, LAST])


def test_a_wrong_answer_has_the_instructions_as_well(stages_of):
    outcome, _ = stages_of(DeviceKind.CUDA, "check", machine_code=recorded("tensor_cores"))
    assert outcome.status is Status.REJECTED
    assert Code.REDUCED_INSTRUCTIONS.value in [each.code for each in outcome.findings]


@pytest.mark.parametrize("built", [True, False])
def test_before_a_gpu_is_there_all_builds_are_made_and_their_machine_code_is_read(monkeypatch, built):
    done = []
    context = SimpleNamespace(
        terms=SimpleNamespace(options=SimpleNamespace(strict=False), gpu="a GPU"),
        build_ahead=lambda: done.append("build ahead"),
        build_services=SimpleNamespace(machine_code=lambda: done.append("machine code")),
        lint=lambda: LookedAt([]),
        sandbox=None,
        output=RunnerOutput(total_bytes=0, text=""),
    )
    fault = None if built else Fault(Status.BUILD_ERROR, finding(Code.COMPILE_FAILED, "no"))
    outcome = stages.BuildOutcome(Build(ok=built, import_s=0.0, units=[]), fault)
    monkeypatch.setattr(stages, "build", lambda _: outcome)
    verdict.begin(context, Stopwatch(Silent()))
    assert done == (["build ahead", "machine code"] if built else [])
