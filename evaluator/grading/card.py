"""Assembly of a grade's card from request and outcome, with remarks on machine and cache."""

import os
import platform
from pathlib import Path

from msgspec.structs import replace

from evaluator.cache.build_cache import trouble
from evaluator.errors import ToolchainMissing
from evaluator.findings import ENTRIES, Code, entry_of, finding
from evaluator.findings.comparing import COMPUTE_IN_FP32, DRIFT, EXTRA_CLAMP, NEARLY_ALL, WEIGHTS_FIRST
from evaluator.findings.running import LAUNCH_KERNEL
from evaluator.findings.submission import ONE_BLOCK, REPLACE_CALL
from evaluator.grading.request import GradeRequest, Unread
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.languages.language import mentions_in_text
from evaluator.languages.registry import recognized
from evaluator.paths import cache_folder
from evaluator.progress import Stopwatch
from evaluator.records import (
    DeviceFacts,
    Environment,
    Finding,
    Outcome,
    ProblemRef,
    SandboxMode,
    Scorecard,
    Seeds,
    Status,
    SubmissionRef,
)
from evaluator.sizes import found_sizes
from evaluator.sizes.cases import sought_sizes
from evaluator.submission.read import Submission
from evaluator.toolchain.host_compiler import cxx, torch_version
from evaluator.version import __version__


def environment(threads: int) -> Environment:
    """Return the description of this machine. Runs the compiler once, for the version."""
    # Imported here: a grade starts its first process before, and this import takes milliseconds.
    import psutil

    try:
        compiler = cxx().version
    except ToolchainMissing:
        compiler = "none"
    return Environment(
        warpgrade=__version__,
        python=platform.python_version(),
        torch=torch_version(),
        compiler=compiler,
        platform=platform.platform(),
        cpu=_cpu_name(),
        cpu_cores=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        threads=threads,
    )


def _cpu_name() -> str:
    """Return the processor's name from /proc/cpuinfo; arm64 kernels do not provide one."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


_FLOOD_BYTES = 1 << 20
_OWN_STEPS = {Code.NO_LAUNCH.value: LAUNCH_KERNEL, Code.LIBRARY_IN_FORWARD.value: REPLACE_CALL}


def remarks_on(outcome: Outcome) -> list[Finding]:
    """Return the findings about sandbox, output and cache."""
    remarks = []
    if outcome.sandbox is not None and outcome.sandbox.mode == SandboxMode.NONE.value:
        remarks.append(finding(Code.NO_SANDBOX, "the submission ran without a sandbox"))
    elif outcome.sandbox is not None and outcome.sandbox.missing:
        remarks.append(finding(Code.WALL_MISSING, f"the sandbox lacks {'; '.join(outcome.sandbox.missing)}"))
    if outcome.output.total_bytes > _FLOOD_BYTES:
        remarks.append(finding(Code.OUTPUT_FLOOD, f"the submission printed {outcome.output.total_bytes} bytes"))
    return [*remarks, *_about_the_cache()]


def about_sizes(terms: GradeTerms) -> list[Finding]:
    """Return a finding about sizes with constants that Warpgrade chose, and about an awkward size that is missing."""
    sentences = found_sizes.about_sizes(terms.problem, sought_sizes(terms.options.sizes, terms.options.case))
    return [finding(Code.SIZE_FOUND, "; ".join(sentences))] if sentences else []


def with_steps_to_own_kernels(outcome: Outcome, required: float | None) -> list[Finding]:
    """Return the findings, with steps that fit a required share of own kernels unless the submission is correct."""
    if required is None or outcome.status is Status.CORRECT:
        return outcome.findings
    return [replace(remark, next_step=_OWN_STEPS.get(remark.code, remark.next_step)) for remark in outcome.findings]


def reason_of(outcome: Outcome) -> Finding | None:
    """Return the reason of the verdict, with a next step that other findings suggest.

    Wrong values begin with the weights, if the weights were not copied. A missing name may be in a block that was left
    out.
    """
    reason = outcome.reason
    if reason is not None and reason.message.startswith("NameError") and ONE_BLOCK in entry_of(reason).other_steps:
        left_out = next((remark for remark in outcome.findings if remark.code == Code.LEFT_OUT.value), None)
        if left_out is None:
            return reason
        return replace(reason, message=f"{reason.message}; {left_out.message}", next_step=ONE_BLOCK)
    usual = (ENTRIES[Code.WRONG_VALUES].next_step, NEARLY_ALL, COMPUTE_IN_FP32, DRIFT, EXTRA_CLAMP)
    if reason is None or reason.code != Code.WRONG_VALUES.value or reason.next_step not in usual:
        return reason
    is_seeded = any(remark.code == Code.WEIGHTS_NOT_COPIED.value for remark in outcome.findings)
    return replace(reason, next_step=WEIGHTS_FIRST) if is_seeded else reason


def _about_the_cache() -> list[Finding]:
    """Return a finding if the cache cannot store builds: the next grade would build again."""
    if (failure := trouble(cache_folder())) is None:
        return []
    return [finding(Code.CACHE_UNUSABLE, f"the cache {failure.folder} cannot store builds: {failure.why}")]


_COMMON = frozenset(Outcome.__struct_fields__).intersection(Scorecard.__struct_fields__)
"""Fields that a card takes from the outcome unchanged. Inheritance would change the order of the fields in files."""


def card_of(request: GradeRequest, outcome: Outcome, seeds: Seeds | None, stopwatch: Stopwatch) -> Scorecard:
    """Return the card of a grade with the given outcome."""
    terms, machine = request.terms, environment(request.terms.threads)
    required = terms.options.require_own_kernel
    outcome = replace(outcome, reason=reason_of(outcome), findings=with_steps_to_own_kernels(outcome, required))
    card = Scorecard(
        **{name: getattr(outcome, name) for name in _COMMON},
        problem=_problem_ref(terms),
        submission=_submission_ref(request.submission, outcome),
        device=DeviceFacts(
            kind=terms.device, name=machine.cpu if terms.gpu is None else terms.gpu.name, gpu=outcome.gpu
        ),
        environment=machine,
        tolerance=terms.options.tolerance,
        values=terms.options.values,
        seeds=seeds,
        mode=terms.options.mode,
        entry=terms.options.entry,
        required_own_kernel=required,
        benchmark_rule=terms.problem.benchmark,
        graded_at=stopwatch.started_at,
        stages_s=stopwatch.stages_s,
        wall_s=stopwatch.wall_s,
    )
    return replace(card, benchmark_correct=card.benchmark_of_checks)


def _problem_ref(terms: GradeTerms) -> ProblemRef:
    problem = terms.problem
    return ProblemRef(
        name=problem.name,
        title=problem.title,
        level=problem.level,
        origin=problem.origin,
        sha256=problem.sha256,
        size=terms.size,
        constants=problem.cases[terms.size].axes,
        precision=problem.precision,
        mode=problem.mode,
        backward=problem.backward,
        check=problem.check,
    )


def _submission_ref(submission: Submission | Unread, outcome: Outcome) -> SubmissionRef:
    match submission:
        case Submission():
            languages = outcome.toolchains
            if languages is None:
                languages = recognized(mentions_in_text(submission.source))
            return SubmissionRef(
                name=submission.name,
                origin=submission.origin,
                sha256=submission.sha256,
                source=submission.source,
                extracted_from_answer=submission.extracted_from_answer,
                toolchains=languages,
            )
        case Unread(name=name, origin=origin):
            return SubmissionRef(name=name, origin=origin, sha256=None, source="", extracted_from_answer=False)
