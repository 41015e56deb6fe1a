"""Grade one submission: read, build, check, time. Whoever called writes what comes out.

Each stage runs the submission in a process of its own, made afresh from the starter and dead when the stage is over;
the reference is timed in others, before and after.
"""

import contextlib
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from evaluator.catalog import sized_source
from evaluator.deadline import Deadline, Guard, limit_s
from evaluator.devices.gpu import Gpu
from evaluator.environment import environment
from evaluator.errors import JudgeFailed, WarpgradeError
from evaluator.findings import Code, finding
from evaluator.interrupts import held_back
from evaluator.isolation import SandboxMode, Starter
from evaluator.judge.starting import light_starter_for, starter_for
from evaluator.model_new import can_define_model_new
from evaluator.outcome import Outcome
from evaluator.records import (
    BaselineKind,
    DeviceFacts,
    DeviceKind,
    Finding,
    Problem,
    ProblemRef,
    ProfilerKind,
    Record,
    Scorecard,
    Seeds,
    Sha256,
    SizeName,
    Status,
    SubmissionRef,
    ToleranceRule,
    WeightsRule,
)
from evaluator.remarks import remarks_on
from evaluator.report.live import Progress
from evaluator.report.text import printable
from evaluator.stopwatch import Lap, Stopwatch
from evaluator.submissions import Submission
from evaluator.timed import LastResort, in_time

if TYPE_CHECKING:
    from evaluator.build.builder import RunTool
    from evaluator.build.equipment import ExtensionBuilder
    from evaluator.judge.early import Early
    from evaluator.judge.foothold import Foothold
    from evaluator.judge.keeper import Keeper
    from evaluator.judge.terms import Terms

_FAULT_CHARACTERS = 1000
_CORES_FOR_EARLY = 4


class Unread(Record, frozen=True):
    """A submission that could not be made out: why, and where it came from. It still gets a scorecard."""

    name: str
    origin: str
    finding: Finding


class GradeRequest(Record, frozen=True):
    """What is to be graded, and how. `timeout_s` is for each stage of the submission; None leaves it to the judge.

    `require_own_kernel` is the least share of the work that the submission's own kernels must do; `strict` refuses to
    grade where a wall of the sandbox is missing. `baselines` and `speedup_of` are timed beside the reference. With
    `profile` a correct submission is run once more, to see where its time goes. `deadline_s` is for the whole grade.
    `weights` is the problem's own rule where it is None.
    """

    problem: Problem
    submission: Submission | Unread
    device: DeviceKind
    gpu: Gpu | None
    size: SizeName
    tolerance: ToleranceRule
    sandbox: SandboxMode
    timeout_s: float | None
    build_timeout_s: float
    replay: Scorecard | None
    require_own_kernel: float | None = None
    strict: bool = False
    baselines: list[BaselineKind] = []
    speedup_of: Submission | None = None
    profile: ProfilerKind | None = None
    deadline_s: float | None = None
    weights: WeightsRule | None = None

    @property
    def limit_s(self) -> float:
        """How long all of the grade may take."""
        return limit_s(self.deadline_s, self.build_timeout_s)


class Library(Record, frozen=True):
    """What a build made, by its key in the cache, for a machine that does not share that."""

    key: Sha256
    content: bytes
    log: str
    wall_s: float


class Begun(Record, frozen=True):
    """A grade whose submission is built, to be finished where a GPU is; with its `libraries`, if that is elsewhere.

    `submission_s` is how much of the time was the submission's own.
    """

    outcome: Outcome
    lap: Lap
    libraries: list[Library] = []
    submission_s: float = 0.0


def grade(
    request: GradeRequest,
    progress: Progress,
    keeper: "Keeper | None" = None,
    begun: Begun | None = None,
    last_resort: LastResort | None = None,
) -> Scorecard:
    """Grade one submission. What it does wrong is in the card; only a broken problem or machine raises.

    Args:
        request: what is graded, and how.
        progress: is told of each stage.
        keeper: keeps what several grades share; None for a grade on its own.
        begun: what `begin` made of the same request, on this machine; None begins here.
        last_resort: ends a process that is stuck behind the deadline; without it the grade ends when the operation
            of this thread does.

    Raises:
        UsageError: the problem is broken, or does not fit into this machine's memory.
        InfraError: no compiler, or no sandbox, on this machine.
    """
    stopwatch = _stopwatch(request, progress, begun)
    outcome, seeds = in_time(
        stopwatch,
        lambda guard: _outcome(request, stopwatch, keeper, begun, guard),
        lambda outcome: _card(request, outcome, None, stopwatch),
        last_resort,
    )
    return _card(request, outcome, seeds, stopwatch)


def begin(
    request: GradeRequest,
    progress: Progress,
    keeper: "Keeper | None" = None,
    last_resort: LastResort | None = None,
) -> Begun | Scorecard:
    """Do as much of a grade as needs no GPU: a scorecard, if that settles it. Raises as `grade` does."""
    stopwatch = _stopwatch(request, progress, None)
    outcome, seeds = in_time(
        stopwatch,
        lambda guard: _outcome(request, stopwatch, keeper, None, guard, built_only=True),
        lambda outcome: _card(request, outcome, None, stopwatch),
        last_resort,
    )
    if outcome.reason is None:
        return Begun(outcome=outcome, lap=stopwatch.lap(), submission_s=stopwatch.deadline.submission_s)
    return _card(request, outcome, seeds, stopwatch)


def _stopwatch(request: GradeRequest, progress: Progress, begun: Begun | None) -> Stopwatch:
    """Begin to time a grade, or go on where `begun` left off."""
    if begun is None:
        return Stopwatch(progress, None, Deadline(request.limit_s))
    deadline = Deadline(request.limit_s, spent_s=begun.lap.wall_s, submission_s=begun.submission_s)
    return Stopwatch(progress, begun.lap, deadline)


def _outcome(
    request: GradeRequest,
    stopwatch: Stopwatch,
    keeper: "Keeper | None",
    begun: Begun | None,
    guard: Guard,
    *,
    built_only: bool = False,
) -> tuple[Outcome, Seeds | None]:
    sized_source(request.problem, request.size)  # A size that the problem lacks is told before anything else.
    match request.submission:
        case Unread(finding=reason):
            return Outcome().failed(_unread_status(reason), reason), None
        case Submission(source=source) as submission if not can_define_model_new(source):
            what = "the name is nowhere in its text" if source.strip() else "its text is empty"
            reason = finding(Code.NO_MODEL_NEW, f"the submission defines no class ModelNew: {what}")
            outcome = Outcome(findings=list(submission.findings))
            return outcome.failed(Status.BUILD_ERROR, reason), None
        case Submission() as submission:
            outcome, seeds = _judged(request, submission.source, stopwatch, keeper, begun, guard, built_only=built_only)
            if built_only and outcome.reason is None:
                return outcome, seeds
            findings = [
                *submission.findings,
                *remarks_on(outcome),
                *outcome.findings,
            ]  # The screen shows the first few.
            return replace(outcome, findings=findings), seeds


def _judged(
    request: GradeRequest,
    source: str,
    stopwatch: Stopwatch,
    keeper: "Keeper | None",
    begun: Begun | None,
    guard: Guard,
    *,
    built_only: bool,
) -> tuple[Outcome, Seeds | None]:
    # Here torch comes in; the cheap commands never get this far. Its threads shall sleep while they wait, not spin:
    # judge and runner share the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if keeper is not None:
        guard.kill_with(keeper.kill_all)
        return _judged_by(lambda: keeper, request, source, stopwatch, begun, built_only=built_only)
    # First of all the starter: it imports torch while the judge does.
    uuid = None if request.gpu is None else request.gpu.uuid
    with contextlib.ExitStack() as own:
        starter = own.enter_context(starter_for(request.device, uuid, request.sandbox, _threads()))
        guard.kill_with(starter.condemn_all)
        foothold = None if request.gpu is None or built_only else _reach_for(request.gpu, starter, own)
        early = _begin_early(request, source, own, guard, stopwatch.deadline) if _may_begin_early(request) else None
        return _judged_by(
            lambda: own.enter_context(_keeper(starter, early, foothold)),
            request,
            source,
            stopwatch,
            begun,
            built_only=built_only,
        )


def _reach_for(gpu: Gpu, starter: Starter, own: contextlib.ExitStack) -> "Foothold":
    """Have contexts made on the GPU while torch is imported; `own` gives it back."""
    from evaluator.judge.foothold import Foothold

    foothold = own.enter_context(Foothold(gpu, starter))
    own.callback(starter.give_up)  # A grade that ends before the starter is ready need not wait for its runners.
    foothold.reach()
    return foothold


def _keeper(starter: Starter, early: "Early | None", foothold: "Foothold | None") -> "Keeper":
    from evaluator.judge.keeper import Keeper

    return Keeper(starter, lasting=False, early=early, foothold=foothold)


def _may_begin_early(request: GradeRequest) -> bool:
    """Say whether builds may begin before torch is there. With few cores they would only take turns with its import.

    Where every wall is asked for, nobody looks at the submission before they are known to stand.
    """
    return _threads() >= _CORES_FOR_EARLY and not request.strict


def _begin_early(
    request: GradeRequest, source: str, own: contextlib.ExitStack, guard: Guard, deadline: Deadline
) -> "Early":
    """Begin in a starter of its own; `own` ends both."""
    from evaluator.build.cache import BuildCache, cache_folder
    from evaluator.build.equipment import builder
    from evaluator.judge.early import Early
    from evaluator.judge.tools import Tools

    cache = BuildCache(cache_folder())
    starter = own.enter_context(light_starter_for(request.device, request.sandbox))
    guard.kill_with(starter.condemn_all)

    def builder_of(run_tool: "RunTool") -> "ExtensionBuilder":
        return builder(
            request.device,
            request.gpu,
            run_tool,
            cache,
            request.build_timeout_s,
            lambda entry, limits: starter.spawn(entry, limits=limits),
            source,
        )

    return own.enter_context(Early(starter, Tools(starter, request.device, lambda: deadline), builder_of, source))


def _first_of_all(request: GradeRequest) -> str:
    """Say what the first grade on a machine waits for."""
    from evaluator.build.equipment import to_build

    return to_build(request.device)


def _terms(request: GradeRequest) -> "Terms":
    from evaluator.judge.terms import Terms

    return Terms(
        problem=request.problem,
        device=request.device,
        gpu=request.gpu,
        size=request.size,
        tolerance=request.tolerance,
        sandbox=request.sandbox,
        timeout_s=request.timeout_s,
        build_timeout_s=request.build_timeout_s,
        threads=_threads(),
        require_own_kernel=request.require_own_kernel,
        strict=request.strict,
        baselines=tuple(request.baselines),
        speedup_of=request.speedup_of,
        profile=request.profile,
        weights=request.weights or request.problem.weights,
    )


def _judged_by(
    have_keeper: Callable[[], "Keeper"],
    request: GradeRequest,
    source: str,
    stopwatch: Stopwatch,
    begun: Begun | None,
    *,
    built_only: bool,
) -> tuple[Outcome, Seeds | None]:
    with stopwatch.stage("read", request.problem.name), held_back():
        with _nothing_collected():
            from evaluator.judge import verdict
            from evaluator.judge.shortage import shortage

        keeper, terms = have_keeper(), _terms(request)
        keeper.make_room(terms)
    seeds: Seeds | None = None
    try:
        with shortage(), contextlib.ExitStack() as stack:
            with stopwatch.stage("prepare", _first_of_all(request)):
                shop = stack.enter_context(keeper.workshop(terms, source, request.replay, stopwatch.deadline))
            seeds = shop.seeds.record()
            if built_only:
                return verdict.begin(shop, stopwatch), seeds
            graded = verdict.judge(shop, stopwatch) if begun is None else verdict.finish(shop, begun.outcome, stopwatch)
            # Only now: which values calls may have is settled where the device is at hand.
            return graded, shop.seeds.record()
    except MemoryError as error:
        reason = finding(Code.JUDGE_MEMORY, f"the judge ran out of memory: {error}")
    except JudgeFailed as error:
        reason = finding(Code.JUDGE_FAILED, error.message)
    except WarpgradeError:
        raise
    except Exception as error:  # noqa: BLE001 - whoever waits for a card is told by one; a batch goes on
        # A submission may have brought it about, and written a part of its text.
        sys.stderr.write(printable(traceback.format_exc()))
        message = printable(f"{type(error).__name__}: {error}")
        reason = finding(Code.OWN_FAULT, message[:_FAULT_CHARACTERS])
    return Outcome().failed(Status.INFRA_ERROR, reason), seeds


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """Import torch: what is imported stays, and looking through it for garbage again and again takes its time."""
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _threads() -> int:
    return len(os.sched_getaffinity(0))


def _card(request: GradeRequest, outcome: Outcome, seeds: Seeds | None, stopwatch: Stopwatch) -> Scorecard:
    machine = environment(_threads())
    return Scorecard(
        status=outcome.status,
        reason=outcome.reason,
        problem=_problem_ref(request.problem, request.size),
        submission=_submission_ref(request.submission),
        device=DeviceFacts(
            kind=request.device, name=machine.cpu if request.gpu is None else request.gpu.name, gpu=outcome.gpu
        ),
        environment=machine,
        sandbox=outcome.sandbox,
        tolerance=request.tolerance,
        seeds=seeds,
        build=outcome.build,
        checks=outcome.checks,
        timing=outcome.timing,
        roofline=outcome.roofline,
        baselines=outcome.baselines,
        profiling=outcome.profiling,
        own_kernels=outcome.own_kernels,
        weights=outcome.weights,
        required_own_kernel=request.require_own_kernel,
        findings=outcome.findings,
        output=outcome.output,
        graded_at=stopwatch.started_at,
        stages_s=stopwatch.stages_s,
        wall_s=stopwatch.wall_s,
    )


def _problem_ref(problem: Problem, size: SizeName) -> ProblemRef:
    return ProblemRef(
        name=problem.name,
        title=problem.title,
        level=problem.level,
        origin=problem.origin,
        sha256=problem.sha256,
        size=size,
        constants=problem.sizes[size],
        precision=problem.precision,
        mode=problem.mode,
        backward=problem.backward,
    )


def _submission_ref(submission: Submission | Unread) -> SubmissionRef:
    match submission:
        case Submission():
            return SubmissionRef(
                name=submission.name,
                origin=submission.origin,
                sha256=submission.sha256,
                source=submission.source,
                extracted_from_answer=submission.extracted_from_answer,
            )
        case Unread(name=name, origin=origin):
            return SubmissionRef(name=name, origin=origin, sha256=None, source="", extracted_from_answer=False)


def _unread_status(reason: Finding) -> Status:
    """An answer without its code cannot be built; one that is too large, or no text, is refused before that."""
    return Status.BUILD_ERROR if reason.code in (Code.NO_CODE, Code.CUT_OFF) else Status.REJECTED
