"""Pipeline of one grade: read, build, check, time. The caller writes the card.

Each stage runs the submission in a new process from the fork server, which ends with the stage. The reference is timed
in separate processes, before and after the submission. During the import of PyTorch, a single grade prepares GPU
contexts and the submission's builds. A reached deadline is an ordinary outcome.
"""

import contextlib
import logging
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from evaluator.catalog import sized_source
from evaluator.deadline import Deadline, DeadlineReached, Guard
from evaluator.devices.gpu import Gpu
from evaluator.errors import JudgeFailed, OutlivesKill, ProblemError, WarpgradeError
from evaluator.findings import Code, entry_of, finding
from evaluator.findings.submission import RENAME
from evaluator.grading.card import about_sizes, card_of, remarks_on
from evaluator.grading.request import Begun, GradeRequest, Unread, keep_freed_memory, nothing_collected
from evaluator.interrupts import held_back
from evaluator.judge.context.context_pool import ContextPool
from evaluator.judge.runners.fork_servers import fork_server_for, light_fork_server_for
from evaluator.judge.setup.grade_terms import GradeTerms
from evaluator.progress import ProgressReceiver, Stopwatch
from evaluator.records import Finding, Outcome, Scorecard, Seeds, Status
from evaluator.sandbox import ForkServer
from evaluator.sizes.cases import HIDDEN
from evaluator.submission.forms import defined_classes
from evaluator.submission.model_new import can_define
from evaluator.submission.read import Submission
from evaluator.text import printable

if TYPE_CHECKING:
    from evaluator.compile.builder import RunTool
    from evaluator.compile.device_builders import ExtensionBuilder
    from evaluator.judge.clock.gpu_session import GpuSession
    from evaluator.judge.context.grade_context import GradeContext
    from evaluator.judge.context.reference_timing import ReferenceTimer
    from evaluator.judge.runners.speculative_build import SpeculativeBuild


LastResort = Callable[[Scorecard], None]
"""Called from another thread with a card, if a grade is stuck seconds after its deadline.

The callback should store the card and end the process.
"""
Worked = tuple[Outcome, Seeds | None]


def in_time(
    stopwatch: Stopwatch,
    work: Callable[[Guard], Worked],
    card_of: Callable[[Outcome], Scorecard],
    last_resort: LastResort | None,
) -> Worked:
    """Return the result of `work`, or the outcome of a reached deadline. A finished result precedes the deadline."""

    def too_late() -> Outcome:
        return Outcome().failed(*stopwatch.deadline.verdict(stopwatch.at))

    def end_it() -> None:
        if last_resort is not None:
            last_resort(card_of(too_late()))

    done: Worked | None = None
    guard = Guard(stopwatch.deadline, end_it)
    try:
        with guard:
            done = work(guard)
    except DeadlineReached:
        guard.end()  # The exception may have interrupted the first end. A watch that goes on would end the process.
        return (too_late(), None) if done is None else done
    return done


_CORES_FOR_SPECULATION = 4


def single_context_pool(
    terms: GradeTerms, source: str, stack: contextlib.ExitStack, guard: Guard, deadline: Deadline
) -> ContextPool:
    """Start the processes of a single grade, before the import of PyTorch; `stack` ends the processes."""
    uuid = None if terms.gpu is None else terms.gpu.uuid
    # Start the fork server first: its import of torch overlaps the judge's.
    fork_server = stack.enter_context(fork_server_for(terms.device, uuid, terms.options.sandbox_mode, terms.threads))
    guard.kill_with(fork_server.condemn_all)
    gpu_session = None if terms.gpu is None else _reach_for(terms.gpu, fork_server, stack)
    speculative_build = (
        start_speculative_build(terms, source, stack, guard, deadline) if _may_build_speculatively(terms) else None
    )
    return stack.enter_context(
        ContextPool(fork_server, lasting=False, speculative_build=speculative_build, gpu_session=gpu_session)
    )


def _reach_for(gpu: Gpu, fork_server: ForkServer, stack: contextlib.ExitStack) -> "GpuSession":
    """Start to create GPU contexts while torch is imported; `stack` releases the GPU."""
    from evaluator.judge.clock.gpu_session import GpuSession

    gpu_session = stack.enter_context(GpuSession(gpu, fork_server))
    stack.callback(fork_server.give_up)  # A grade that ends early need not wait for the fork server's runners.
    gpu_session.reach()
    return gpu_session


def _may_build_speculatively(terms: GradeTerms) -> bool:
    """Return whether builds may start before torch is imported. With few cores they would only delay the import.

    With `--strict`, no process reads the submission before every sandbox layer is confirmed.
    """
    return terms.threads >= _CORES_FOR_SPECULATION and not terms.options.strict


def start_speculative_build(
    terms: GradeTerms, source: str, stack: contextlib.ExitStack, guard: Guard, deadline: Deadline
) -> "SpeculativeBuild":
    """Start speculative builds in a separate fork server; `stack` ends both."""
    from evaluator.cache.build_cache import BuildCache
    from evaluator.compile.device_builders import builder
    from evaluator.judge.runners.fork_servers import SandboxedTools
    from evaluator.judge.runners.speculative_build import SpeculativeBuild
    from evaluator.paths import cache_folder

    cache = BuildCache(cache_folder())
    fork_server = stack.enter_context(light_fork_server_for(terms.device, terms.options.sandbox_mode))
    guard.kill_with(fork_server.condemn_all)

    def builder_of(run_tool: "RunTool") -> "ExtensionBuilder":
        limit_s = terms.options.build_timeout_s
        return builder(terms.device, terms.gpu, run_tool, cache, limit_s, fork_server.spawn, source)

    run_tool = SandboxedTools(fork_server, terms.device, lambda: deadline)
    return stack.enter_context(SpeculativeBuild(fork_server, run_tool, builder_of, source, terms.options.entries))


_log = logging.getLogger("warpgrade")
_FAULT_CHARACTERS = 1000


class _Part(NamedTuple):
    """Part of a grade: stages in a context (all stages, stages without a GPU, or stages after a build).

    With `calls_reference`, the stages call the reference, after a plan of the memory.
    """

    stages: Callable[["GradeContext", "ReferenceTimer"], Outcome]
    calls_reference: bool


def grade(
    request: GradeRequest,
    progress: ProgressReceiver,
    context_pool: ContextPool | None = None,
    begun: Begun | None = None,
    last_resort: LastResort | None = None,
) -> Scorecard:
    """Grade one submission. Only a broken problem or machine raises; failures of the submission are in the card.

    Args:
        request: submission, problem and options.
        progress: receives each stage.
        context_pool: shares state between grades; None for a single grade.
        begun: result of `begin` for the same request on this machine; None starts from the beginning.
        last_resort: ends a process that is stuck after the deadline. Without a last resort, a grade ends after the
            current operation of this thread.

    Raises:
        UsageError: the problem is broken, or exceeds the memory of this machine.
        InfraError: this machine has no compiler or no sandbox.
    """
    stopwatch = _stopwatch(request, progress, begun)

    def stages(context: "GradeContext", timer: "ReferenceTimer") -> Outcome:
        from evaluator.judge import verdict

        if begun is None:
            return verdict.judge(context, timer, stopwatch)
        return verdict.finish(context, timer, begun.outcome, stopwatch)

    part = _Part(stages, calls_reference=True)
    outcome, seeds = _in_time(request, stopwatch, context_pool, part, last_resort)
    return card_of(request, outcome, seeds, stopwatch)


def begin(
    request: GradeRequest,
    progress: ProgressReceiver,
    context_pool: ContextPool,
    last_resort: LastResort | None = None,
) -> Begun | Scorecard:
    """Run the stages without a GPU. Return a scorecard if they decide the verdict. Raises like `grade`.

    `grade` plans the memory, in the process with the GPU. A plan imports hundreds of modules: in each building process,
    the import would take longer than many cached builds.
    """
    stopwatch = _stopwatch(request, progress, None)

    def stages(context: "GradeContext", _: "ReferenceTimer") -> Outcome:
        from evaluator.judge import verdict

        return verdict.begin(context, stopwatch)

    part = _Part(stages, calls_reference=False)
    outcome, seeds = _in_time(request, stopwatch, context_pool, part, last_resort)
    if outcome.is_final:
        return card_of(request, outcome, seeds, stopwatch)
    return Begun(outcome=outcome, lap=stopwatch.lap(), submission_s=stopwatch.deadline.submission_s)


def _stopwatch(request: GradeRequest, progress: ProgressReceiver, begun: Begun | None) -> Stopwatch:
    """Start the stopwatch of a grade, or continue from `begun`."""
    if begun is None:
        return Stopwatch(progress, None, Deadline(request.terms.options.limit_s))
    deadline = Deadline(request.terms.options.limit_s, spent_s=begun.lap.wall_s, submission_s=begun.submission_s)
    return Stopwatch(progress, begun.lap, deadline)


def _in_time(
    request: GradeRequest,
    stopwatch: Stopwatch,
    context_pool: ContextPool | None,
    part: _Part,
    last_resort: LastResort | None,
) -> Worked:
    """Return the outcome of the part, or of the reached deadline."""
    return in_time(
        stopwatch,
        lambda guard: _outcome(request, stopwatch, context_pool, part, guard),
        lambda outcome: card_of(request, outcome, None, stopwatch),
        last_resort,
    )


def _outcome(
    request: GradeRequest, stopwatch: Stopwatch, context_pool: ContextPool | None, part: _Part, guard: Guard
) -> Worked:
    for case in request.terms.cases:
        sized_source(request.terms.problem, case)  # Report a missing case before any other failure.
    if HIDDEN in request.terms.options.case and not request.terms.problem.hidden:
        message = f"{request.terms.problem.name} declares no hidden cases"
        raise ProblemError(message, hint="add ranges to problem.toml: [hidden] N = { min = 1, max = 4096 }")
    match request.submission:
        case Unread(finding=reason):
            return Outcome().failed(entry_of(reason).status, reason), None
        case Submission(source=source) as submission if not can_define(source, request.terms.options.entries):
            reason = _no_entry(source, request.terms.options.entries)
            outcome = Outcome(findings=list(submission.findings))
            return outcome.failed(Status.BUILD_ERROR, reason), None
        case Submission(source=source) as submission:
            # OpenMP threads must sleep while waiting, not spin, because judge and runner share the cores.
            os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
            with contextlib.ExitStack() as stack:
                if context_pool is None:
                    context_pool = single_context_pool(request.terms, source, stack, guard, stopwatch.deadline)
                else:
                    guard.kill_with(context_pool.kill_all)
                _import_judge(request, context_pool, stopwatch, plans_memory=part.calls_reference)
                outcome, seeds = _staged(request, source, stopwatch, context_pool, part)
            if outcome.is_final:  # The terminal shows only the first few findings.
                findings = [*submission.findings, *about_sizes(request.terms), *remarks_on(outcome), *outcome.findings]
                outcome = replace(outcome, findings=findings)
            return outcome, seeds


def _no_entry(source: str, entries: Sequence[str]) -> Finding:
    message = f"the submission defines no class {' or '.join(entries)}"
    if classes := defined_classes(source):
        return finding(Code.NO_MODEL_NEW, f"{message}, but {', '.join(classes)}", next_step=RENAME)
    reason = "the name does not occur in the text" if source.strip() else "the text is empty"
    return finding(Code.NO_MODEL_NEW, f"{message}: {reason}")


def _import_judge(
    request: GradeRequest, context_pool: ContextPool, stopwatch: Stopwatch, *, plans_memory: bool
) -> None:
    """Import torch, which cheap commands and unreadable submissions do without."""
    with stopwatch.stage("read", request.terms.problem.name), held_back(signal.SIGINT):
        keep_freed_memory()
        with nothing_collected():
            import evaluator.devices.out_of_memory
            import evaluator.judge.verdict  # noqa: F401
        context_pool.make_room(request.terms, plans_memory=plans_memory)


def _staged(request: GradeRequest, source: str, stopwatch: Stopwatch, context_pool: ContextPool, part: _Part) -> Worked:
    """Run the stages in a context. A failure of the judge itself is an outcome."""
    from evaluator.compile.device_builders import to_build
    from evaluator.devices.out_of_memory import out_of_memory

    seeds: Seeds | None = None
    try:
        with out_of_memory(), contextlib.ExitStack() as stack:
            with stopwatch.stage("prepare", to_build(request.terms.device)):
                context, timer = stack.enter_context(
                    context_pool.context_for(request.terms, source, request.replay, stopwatch.deadline)
                )
            seeds = context.seeds.record()
            outcome = part.stages(context, timer)
            # After the stages: the value distributions of calls are known only once the device is available.
            return outcome, context.seeds.record()
    except MemoryError as error:
        reason = finding(Code.JUDGE_MEMORY, f"the judge ran out of memory: {error}")
    except OutlivesKill as error:
        return Outcome().failed(Status.RUNTIME_ERROR, finding(Code.NOT_STOPPED, error.message)), seeds
    except JudgeFailed as error:
        reason = finding(Code.JUDGE_FAILED, error.message, next_step=error.hint or None)
    except WarpgradeError:
        raise
    except Exception as error:  # noqa: BLE001 - the caller needs a card, and a batch must continue
        # The text may come from the submission.
        _log.error("%s", printable(traceback.format_exc()))
        message = printable(f"{type(error).__name__}: {error}")
        reason = finding(Code.OWN_FAULT, message[:_FAULT_CHARACTERS])
    stopwatch.deadline.check()  # At the deadline all processes are killed, and any step may take that for a failure.
    return Outcome().failed(Status.INFRA_ERROR, reason), seeds
