"""Grade one submission: read, build, check, time. Whoever called writes what comes out.

Each stage runs the submission in a process of its own, made afresh from the starter and dead when the stage is over;
the reference is timed in others, before and after.
"""

import os

from msgspec.structs import replace

from evaluator.catalog import sized_source
from evaluator.devices.gpu import Gpu
from evaluator.environment import environment
from evaluator.errors import JudgeFailed
from evaluator.findings import Code, finding
from evaluator.interrupts import held_back
from evaluator.isolation import SandboxMode
from evaluator.outcome import Outcome
from evaluator.records import (
    DeviceFacts,
    DeviceKind,
    Finding,
    Problem,
    ProblemRef,
    Record,
    Scorecard,
    Seeds,
    SizeName,
    Status,
    SubmissionRef,
    ToleranceRule,
)
from evaluator.report.live import Progress
from evaluator.stopwatch import Stopwatch
from evaluator.submissions import Submission

_FLOOD_BYTES = 1 << 20


class Unread(Record, frozen=True):
    """A submission that could not be made out: why, and where it came from. It still gets a scorecard."""

    name: str
    origin: str
    finding: Finding


class GradeRequest(Record, frozen=True):
    """What is to be graded, and how. `timeout_s` is for each stage of the submission; None leaves it to the judge."""

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


def grade(request: GradeRequest, progress: Progress) -> Scorecard:
    """Grade one submission. What it does wrong is in the card; only a broken problem or machine raises.

    Raises:
        UsageError: the problem is broken, or does not fit into this machine's memory.
        InfraError: no compiler, or no sandbox, on this machine.
    """
    stopwatch = Stopwatch(progress)
    threads = len(os.sched_getaffinity(0))
    sized_source(request.problem, request.size)  # A size that the problem lacks is told before anything else.
    match request.submission:
        case Unread(finding=reason):
            return _card(request, Outcome().failed(_unread_status(reason), reason), None, stopwatch, threads)
        case Submission() as submission:
            outcome, seeds = _judged(request, submission, stopwatch, threads)
            findings = [*submission.findings, *_remarks(outcome), *outcome.findings]  # The screen shows the first few.
            return _card(request, replace(outcome, findings=findings), seeds, stopwatch, threads)


def _judged(request: GradeRequest, submission: Submission, stopwatch: Stopwatch, threads: int) -> tuple[Outcome, Seeds]:
    # Here torch comes in; the cheap commands never get this far. Its threads shall sleep while they wait, not spin:
    # judge and runner share the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with stopwatch.stage("read", request.problem.name), held_back():
        from evaluator.judge.memory_plan import refuse_what_does_not_fit
        from evaluator.judge.seeds import SeedBook
        from evaluator.judge.verdict import judge
        from evaluator.judge.workshop import Terms, Workshop

        refuse_what_does_not_fit(request.problem, request.size, request.gpu)
        seeds = SeedBook(request.replay)
        terms = Terms(
            problem=request.problem,
            device=request.device,
            gpu=request.gpu,
            size=request.size,
            tolerance=request.tolerance,
            sandbox=request.sandbox,
            timeout_s=request.timeout_s,
            build_timeout_s=request.build_timeout_s,
            threads=threads,
        )
    try:
        with Workshop(terms, submission.source, seeds) as shop:
            return judge(shop, stopwatch), seeds.record()
    except MemoryError as error:
        reason = finding(Code.JUDGE_MEMORY, f"the judge ran out of memory: {error}")
    except JudgeFailed as error:
        reason = finding(Code.JUDGE_FAILED, error.message)
    return Outcome().failed(Status.INFRA_ERROR, reason), seeds.record()


def _card(
    request: GradeRequest, outcome: Outcome, seeds: Seeds | None, stopwatch: Stopwatch, threads: int
) -> Scorecard:
    machine = environment(threads)
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
    """An answer without code cannot be built; one that is too large, or no text, is refused before that."""
    return Status.BUILD_ERROR if reason.code == Code.NO_CODE.value else Status.REJECTED


def _remarks(outcome: Outcome) -> list[Finding]:
    """Say what a reader of the card should know of the walls and of what was printed."""
    remarks = []
    if outcome.sandbox is not None and outcome.sandbox.mode == SandboxMode.NONE.value:
        remarks.append(finding(Code.NO_SANDBOX, "the submission ran without a sandbox"))
    elif outcome.sandbox is not None and outcome.sandbox.missing:
        remarks.append(finding(Code.WALL_MISSING, f"missing here: {'; '.join(outcome.sandbox.missing)}"))
    if outcome.output.total_bytes > _FLOOD_BYTES:
        remarks.append(finding(Code.OUTPUT_FLOOD, f"{outcome.output.total_bytes} bytes were printed"))
    return remarks
