"""Verdict of a grade: the stages in order, those with the cheapest rejections first."""

import contextlib
from collections.abc import Iterator

from msgspec.structs import replace

from evaluator.findings import Code, finding
from evaluator.judge import stages, timing_stage
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.context.reference_timing import ReferenceTimer
from evaluator.judge.exhibits.ablation import needed_alone
from evaluator.judge.exhibits.kernel_profile import profiling
from evaluator.judge.exhibits.own_kernels import OwnKernelEvidence, not_known, own_kernels, too_little
from evaluator.judge.exhibits.reduced_instructions import about_machine_code, with_library_kernels
from evaluator.judge.exhibits.roofline_check import check_roofline
from evaluator.judge.graded_cases import grade_cases
from evaluator.progress import Stopwatch
from evaluator.records import Build, DeviceKind, Fault, GradeMode, Outcome, Status
from evaluator.timing.quote import unquoted

_MEASURING = frozenset(("time", "roofline", "profile"))
"""Stages without other work of this judge on the device. `ReferenceTimer.before` settles other work only before a
measurement, absent from most grades of a batch."""


def judge(context: GradeContext, timer: ReferenceTimer, stopwatch: Stopwatch) -> Outcome:
    """Lint, build, check and time the submission.

    If speculative builds are complete, the problem is set up first, while processes for the submission are still
    starting.
    """
    stages.require_sandbox_layers(context)
    if context.gpu_session is not None:
        context.gpu_session.reach()
    if context.may_set_up_early():
        with stopwatch.stage("device"):
            context.set_up_early()
    build_outcome = _lint_and_build(context, stopwatch)
    return build_outcome if build_outcome.is_final else finish(context, timer, build_outcome, stopwatch)


def begin(context: GradeContext, stopwatch: Stopwatch) -> Outcome:
    """Run the stages without a GPU. Unless the outcome is final, `finish` continues.

    Builds that only a constructor requests, and the machine code, go into the cache, from which `finish` takes them.
    """
    stages.require_sandbox_layers(context)
    build_outcome = _lint_and_build(context, stopwatch)
    if not build_outcome.is_final:
        context.build_services.machine_code()
    return build_outcome


def _lint_and_build(context: GradeContext, stopwatch: Stopwatch) -> Outcome:
    """Lint and build; for a GPU, also what only a constructor requests: no compiler may run beside the reference.

    The lint decides nothing, and only adds findings and languages.
    """
    with stopwatch.stage("lint"):
        looked = context.lint()
    with stopwatch.stage("build"):
        built = stages.build(context)
        if built.fault is None and context.terms.gpu is not None:
            context.build_ahead()
    outcome = Outcome(
        build=built.build,
        findings=looked.findings,
        sandbox=context.sandbox,
        output=context.output,
        toolchains=looked.toolchains,
    )
    return outcome if built.fault is None else outcome.failed(*built.fault)


def finish(context: GradeContext, timer: ReferenceTimer, build_outcome: Outcome, stopwatch: Stopwatch) -> Outcome:
    """Check and time a build at every case, made here or by another process on the same machine."""
    if build_outcome.build is None:
        raise ValueError("nothing was built")
    if context.terms.gpu is not None:
        with stopwatch.stage("device"):
            context.take_device()
    outcome = grade_cases(
        context, timer, build_outcome.build, stopwatch, lambda *case: _graded(context, stopwatch, *case)
    )
    machine_code = with_library_kernels(context.build_services.machine_code(), outcome.profiling)
    about_code = about_machine_code(machine_code, context.terms.problem.precision, context.terms.problem.formats)
    outcome = replace(
        outcome,
        sandbox=context.sandbox,
        machine_code=machine_code,
        findings=[*outcome.findings, *about_code, *build_outcome.findings],
        toolchains=build_outcome.toolchains,
    )
    if context.gpu_session is None:
        return outcome
    monitor = context.gpu_session.monitor
    return replace(outcome, gpu=monitor.facts(), findings=[*outcome.findings, *monitor.findings(outcome.timing)])


def _graded(context: GradeContext, stopwatch: Stopwatch, timer: ReferenceTimer, build: Build, detail: str) -> Outcome:
    """Check and time a build at the case of the context; `detail` is that of the stages."""
    with contextlib.ExitStack() as ends:
        grade = _Finish(context, timer, stopwatch, ends, detail)
        grade.measure_reference()
        grade.check(build)
        for stage in (
            grade.require_own_kernels,
            grade.time,
            grade.compare_with_roofline,
            grade.profile,
            grade.accept,
        ):
            if not grade.outcome.is_final:
                stage()
        context.warm_idle_runners()
    return replace(grade.outcome, output=context.output)


class _Finish:
    """Stages of a built submission. Each stage adds to `outcome`, and may make the outcome final."""

    _evidence: OwnKernelEvidence

    def __init__(
        self,
        context: GradeContext,
        timer: ReferenceTimer,
        stopwatch: Stopwatch,
        ends: contextlib.ExitStack,
        detail: str,
    ) -> None:
        self._context = context
        self._timer = timer
        self._stopwatch = stopwatch
        self._ends = ends
        self._detail = detail
        self._reference: timing_stage.ReferenceSide | None = None
        self._right: stages.RightRunner | None = None
        self._required_share = context.terms.options.require_own_kernel
        self.outcome = Outcome()

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Enter a stage. Before a stage that needs the device alone, settle all other work of this judge."""
        with self._stopwatch.stage(name, self._detail):
            if name in _MEASURING:
                self._context.settle()
                self._timer.settle()
            yield

    def measure_reference(self) -> None:
        """Time the reference on a GPU before any code of the submission runs. Elsewhere stage `time` does.

        Without a GPU, all processes of the submission are stopped between two calls.
        """
        if self._context.terms.gpu is not None and self._context.terms.is_timed:
            with self._stage("reference"):
                self._reference = timing_stage.measure_reference(self._context, self._timer)

    def check(self, build: Build) -> None:
        """Compare the submission's answers with the expected outputs."""
        with self._stage("check"):
            checked = stages.check(self._context, build, self._ends)
            self._context.build_services.machine_code()  # No disassembler may run beside the timing.
        self._evidence, self._right = checked.evidence, checked.right
        self.outcome = Outcome(
            build=checked.build,
            checks=checked.checks,
            findings=checked.findings,
            own_kernels=own_kernels(checked.evidence),
            weights=checked.weights,
        )
        self._fail(checked.fault)

    def require_own_kernels(self) -> None:
        """Reject a submission whose own kernels do too little, if the grade requires a share."""
        if self._required_share is None:
            return
        self._evidence = stages.own_kernel_evidence(self._context, self._evidence)
        self.outcome = replace(self.outcome, own_kernels=own_kernels(self._evidence))
        self._fail(too_little(self.outcome.own_kernels, self._required_share))

    def time(self) -> None:
        """Time both sides. On `emulated`, no time is meaningful; mode `check` leaves the times out."""
        if not self._context.terms.is_timed:
            if self._context.terms.options.mode is GradeMode.CHECK:
                untimed = finding(Code.NOT_TIMED, "the grade had mode check: no time was measured")
                self.outcome = replace(self.outcome, findings=[untimed, *self.outcome.findings])
            return
        with self._stage("time"):
            reference = self._reference or timing_stage.measure_reference(self._context, self._timer)
            timed = timing_stage.measure_both(self._context, self._timer, reference, self._right)
        outcome = self.outcome
        self.outcome = replace(
            outcome,
            checks=stages.with_check(outcome.checks, timed.failed),
            timing=timed.timing,
            l2=None if timed.timing is None else self._context.backend.l2,
            baselines=timed.baselines,
            weights=timed.weights or outcome.weights,
            findings=[*outcome.findings, *timed.findings],
        )
        self._fail(timed.fault)

    def compare_with_roofline(self) -> None:
        """Reject a time that the GPU's bandwidth makes impossible."""
        timing = self.outcome.timing
        if self._context.terms.gpu is None or timing is None:
            return
        with self._stage("roofline"):
            bounded = check_roofline(self._context, timing)
        findings = [*self.outcome.findings, *bounded.findings]
        timing = unquoted(timing) if bounded.unearned else timing
        self.outcome = replace(self.outcome, roofline=bounded.roofline, timing=timing, findings=findings)
        self._fail(bounded.fault)

    def profile(self) -> None:
        """Profile one more call, on request. On a GPU, no other measurement shows the share of own kernels."""
        terms = self._context.terms
        is_requested = terms.options.profile is not None or (terms.gpu is not None and self._required_share is not None)
        if not is_requested or terms.device is DeviceKind.EMULATED:
            return
        with self._stage("profile"):
            profile = profiling(self._context)
            if self._required_share is not None:
                profile = needed_alone(self._context, profile)
        share = own_kernels(self._evidence._replace(profiling=profile))
        self.outcome = replace(self.outcome, profiling=profile, own_kernels=share)
        self._fail(too_little(share, self._required_share))

    def accept(self) -> None:
        """Make the verdict `correct`, unless a required share of own kernels is unknown."""
        self.outcome = replace(self.outcome, status=Status.CORRECT)
        self._fail(not_known(self.outcome.own_kernels, self._required_share))

    def _fail(self, fault: Fault | None) -> None:
        if fault is not None:
            self.outcome = self.outcome.failed(*fault)
