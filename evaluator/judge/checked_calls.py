"""The checked calls of a runner, the first failure, and remarks on the weights."""

import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.emulator.parsing.parse_in_sandbox import full_size_numbers
from evaluator.errors import ProblemError
from evaluator.findings import Code, Trait, finding, has_trait
from evaluator.judge.context.grade_context import GradeContext
from evaluator.judge.numerics.arithmetic_modes import with_handlers
from evaluator.judge.reference.changing_weights import Sites
from evaluator.judge.reference.dependence import depends_on_random_numbers, differ
from evaluator.judge.reference.reference import Reference
from evaluator.judge.runners.language_faults import hard_coded_size
from evaluator.judge.setup.seed_book import FEWEST_CALLS, UNTIMED_CALLS, fresh_seed
from evaluator.judge.trial.model_runner import ModelRunner
from evaluator.judge.trial.retry import SEARCH_S, differing, retried
from evaluator.judge.trial.trial import Trial
from evaluator.judge.trial.trial_runner import TrialRunner
from evaluator.protocol.frames import Constructed
from evaluator.records import Check, DeviceKind, Fault, Finding, Schedule, SizeName, Status
from evaluator.sandbox.time_limit import CpuTime
from evaluator.submission.requirements import is_for_the_cpu

aten = torch.ops.aten
_NAMED = 3
_OTHER_SIGNS: Mapping[object, tuple[int, int]] = {
    aten.linalg_qr.default: (0, 1),
    aten.linalg_eig.default: (1, 1),
    aten._linalg_eigh.default: (1, 1),  # noqa: SLF001
    aten._linalg_svd.default: (0, 2),  # noqa: SLF001
}
"""Operations, and the numbers of the results that may have other signs together."""
_MANY_ANSWERS = "the reference calls qr, eig, eigh or svd, which have more than one right answer"
_ENOUGH_S = 40.0
"""Work of a submission's checked calls, in seconds, after which only calls that are needed as evidence follow."""


class Called(NamedTuple):
    """The checked calls of a runner, and the runner's trials; without a trial runner, no call was possible.

    `assumed`: the submission's tensors with values of the reference and without proof, by the reference's names.
    `partly_in_evaluation`: a module of ModelNew is in evaluation mode, says the runner.
    `more_s` is the expected duration of the checked calls that a failure prevented. `first_call_ms`: of right calls.
    """

    trial_runner: TrialRunner | None
    checks: list[Check]
    fault: Fault | None
    remarks: list[Finding]
    sites: Sites | None = None
    assumed: Mapping[str, str] = {}
    more_s: float = 0.0
    partly_in_evaluation: bool = False
    first_call_ms: float | None = None

    @property
    def may_need_training(self) -> bool:
        """Whether wrong values may come from an `eval()` of ModelNew's constructor, in a problem in training mode."""
        is_wrong = self.fault is not None and has_trait(self.fault.finding, Trait.WRONG_VALUES)
        return self.partly_in_evaluation and is_wrong

    @property
    def reason_to_seed(self) -> str | None:
        """Reason to repeat the calls with seeded weights: wrong answers may come from an assumption; None if not.

        The reason is part of a finding, if the answers are right then.
        """
        if not self.assumed or self.fault is None or not has_trait(self.fault.finding, Trait.FROM_WEIGHTS):
            return None
        code, pairs = self.fault.finding.code, _listed(self.assumed)
        return f"answers are right for ModelNew's own values, and not with the reference's ({code}): {pairs}"


def checked_calls(
    context: GradeContext,
    model_runner: ModelRunner,
    meanwhile: Callable[[], object] | None = None,
    *,
    most: int | None = None,
) -> Called:
    """Load the submission, construct the model and make the checked calls, up to the first failure.

    The judge calls `meanwhile` while the runner loads. With `most`, as many calls at most follow calls of another
    runner, which proved the outputs.
    """
    if (fault := model_runner.load(meanwhile=meanwhile)) is not None:
        return Called(None, [], _for_the_cpu(fault, context), [])
    constructed = model_runner.construct()
    if isinstance(constructed, Fault):
        return Called(None, [], _for_the_cpu(constructed, context), [])
    checks: list[Check] = []
    sites = model_runner.sites(constructed)
    trial_runner = model_runner.trial_runner(sites)
    emulated = context.terms.device is DeviceKind.EMULATED
    schedules: Iterator[Schedule | None] = (
        context.seeds.schedules(context.terms.size) if emulated else itertools.repeat(None)
    )
    right_seeds: set[int] = set()
    size = context.terms.size
    needed = seeds = context.seeds.checks(size)[:most]
    slow: _SlowCalls | None = None
    if not context.terms.is_timed:
        seeds = [*needed, *context.seeds.more_checks(len(needed), size)]
        slow = _SlowCalls(model_runner.session.child.cpu_time, trial_runner, max(len(needed), FEWEST_CALLS))
    fewer: list[Finding] = []
    first_call_ms: float | None = None
    proofs = _until_proven(context, trial_runner) if most is None else ()
    for index, seed in enumerate(itertools.chain(seeds, proofs)):
        if slow is not None and slow.are_enough(index):
            message = f"{index} of {len(seeds)} calls were checked: these took {slow.work_s:.0f} s of CPU time"
            fewer = [finding(Code.FEWER_CALLS, message)]
            break
        schedule, timeout_s = next(schedules), context.call_timeout_s
        trial = trial_runner.run(index, seed, schedule=schedule, timeout_s=timeout_s, second_opinion=True)
        checks += [trial.check] if trial.check is not None else []
        if trial.fault is None:
            first_call_ms = trial.elapsed_ms if first_call_ms is None else first_call_ms
            if index:  # The first call has no cancelling rows: a later call of its seed has other inputs.
                right_seeds.add(seed)
            continue
        fault, again = differing(trial.fault), None
        if seed not in right_seeds:
            search_s = math.inf if context.terms.gpu is None else SEARCH_S
            fault, again = retried(
                trial_runner, trial, index, seed, schedules, context.call_timeout_s, search_s=search_s
            )
        checks += [again] if again is not None else []
        excused = None if fault is None else _excused(fault, trial, model_runner, context)
        remarks = _remarks(constructed, checks, sites, refused=bool(trial.refused))
        more_s = max(len(seeds) - index - 1, 0) * trial_runner.pace_s
        partly = constructed.partly_in_evaluation
        return Called(trial_runner, checks, excused, remarks, sites, constructed.assumed, more_s, partly)
    # The answers at another size, or in another process, are evidence.
    unproven = None if context.right_at or most is not None else trial_runner.unproven()
    reported_sites = sites if unproven is None else sites._replace(unmatched=False)  # The reason tells of the weights.
    remarks = [*fewer, *_remarks(constructed, checks, reported_sites)]
    return Called(trial_runner, checks, unproven, remarks, sites, constructed.assumed, first_call_ms=first_call_ms)


def _until_proven(context: GradeContext, trial_runner: TrialRunner) -> Iterator[int]:
    """Yield seeds of further calls, as long as the calls so far do not prove the outputs right.

    A distribution may be evidence in some of its calls only: the first layers of a deep network leave little of the
    differences between two images.
    """
    for seed in context.seeds.proofs():
        if not trial_runner.lacks_proof:
            return
        yield seed


class _SlowCalls:
    """Judges when the calls of a slow submission are enough. CPU time decides, since neighbours may take the cores."""

    def __init__(self, cpu_time: Callable[[], CpuTime], trial_runner: TrialRunner, fewest: int) -> None:
        self._cpu_time = cpu_time
        self._trial_runner = trial_runner
        self._fewest = fewest
        self._started, self._first = time.monotonic(), cpu_time()
        self.work_s = 0.0

    def are_enough(self, count: int) -> bool:
        """Return whether `count` calls were slow and are evidence: for each output, and for the precision check."""
        if count < self._fewest or time.monotonic() - self._started < _ENOUGH_S or self._trial_runner.lacks_proof:
            return False
        if count < UNTIMED_CALLS and self._trial_runner.lacks_calls:
            return False
        self.work_s = self._cpu_time().work_s(self._first, len(os.sched_getaffinity(0)))
        return self.work_s >= _ENOUGH_S


def _for_the_cpu(fault: Fault, context: GradeContext) -> Fault:
    """Return the fault, made inconclusive for C++ written for the CPU on another device.

    The tensors are not those that the code was written for.
    """
    if (
        context.terms.device is DeviceKind.CPU
        or not has_trait(fault.finding, Trait.FROM_CPU_CODE)
        or not is_for_the_cpu(context.source)
    ):
        return fault
    device = context.terms.device.value
    message = f"the submission builds C++ for the CPU, and this grade is on {device}: {fault.finding.message}"
    return Fault(Status.INCONCLUSIVE, finding(Code.NOT_ON_THIS_DEVICE, message, line=fault.finding.line))


def _of_many_answers(fault: Fault, context: GradeContext) -> Fault:
    """Return the fault, made inconclusive for values that depend on random numbers of the reference's forward.

    Also if the reference's answer is one of many: eigenvectors with other signs.
    """
    reference = context.reference
    if not has_trait(fault.finding, Trait.FROM_RANDOM_REFERENCE):
        return fault
    if has_many_answers(reference):
        return Fault(Status.INCONCLUSIVE, finding(Code.NOT_UNIQUE, f"{_MANY_ANSWERS}: {fault.finding.message}"))
    if not reference.draws_numbers:
        return fault
    if not depends_on_random_numbers(reference, fresh_seed()):
        return fault
    message = f"the reference draws random numbers, which decide about its values: {fault.finding.message}"
    return Fault(Status.INCONCLUSIVE, finding(Code.RANDOM_REFERENCE, message))


def _with_other_signs(
    numbers: tuple[int, int], func: Callable[..., Sequence[torch.Tensor]], *args: object, **options: object
) -> tuple[torch.Tensor, ...]:
    results = enumerate(func(*args, **options))
    return tuple(-result if number in numbers else result for number, result in results)


def has_many_answers(reference: Reference) -> bool:
    """Return whether a call of the reference has more than one right answer; False if a call is not possible."""
    with contextlib.suppress(ProblemError, MemoryError), out_of_memory():
        block = reference.blocks(reference.draw(fresh_seed()))[0]
        handlers = {func: partial(_with_other_signs, numbers) for func, numbers in _OTHER_SIGNS.items()}
        one, other = (
            reference.values(reference.altered(block, 0, None, signs))
            for signs in (contextlib.nullcontext(), with_handlers(handlers))
        )
        return any(differ(value, other.get(path)) for path, value in one.items())
    return False


def _excused(fault: Fault, trial: Trial, model_runner: ModelRunner, context: GradeContext) -> Fault:
    """Return the fault of a call, with a refused launch as the cause, or made inconclusive for another cause."""
    if trial.refused:
        fault = model_runner.session.with_refused_launch(fault, trial.refused)
    return _of_fixed_size(_for_the_cpu(_of_many_answers(fault, context), context), context)


def _of_fixed_size(fault: Fault, context: GradeContext) -> Fault:
    """Return the fault, made inconclusive for a kernel written for the full size that failed at a small size.

    Applies only to `emulated`, which cannot grade the full size, and only to typical consequences of a wrong size. On
    other devices, a number in the text would be a way around a verdict. Right answers at a size disprove the numbers
    that the size changes.
    """
    if (
        context.terms.device is not DeviceKind.EMULATED
        or context.terms.size == SizeName.FULL
        or not has_trait(fault.finding, Trait.FROM_FIXED_SIZE)
    ):
        return fault
    cases, spawn = context.terms.problem.cases, context.fork_server.spawn
    undisproved = {
        name: value
        for name, value in cases[SizeName.FULL].axes.items()
        if all(axes[name] == value for axes in context.right_at)
    }
    numbers = full_size_numbers(context.source, undisproved, cases[context.terms.size].axes, spawn)
    excuse = hard_coded_size(numbers, fault.finding, context.source)
    return fault if excuse is None else Fault(Status.INCONCLUSIVE, excuse)


def _remarks(constructed: Constructed, checks: list[Check], sites: Sites, *, refused: bool = False) -> list[Finding]:
    remarks = []
    if constructed.difference is not None:
        remarks.append(finding(Code.WEIGHTS_NOT_COPIED, f"weights were seeded, not copied: {constructed.difference}"))
    if renamed := {name: own_name for name, own_name in constructed.assumed.items() if name != own_name}:
        message = f"the reference's weights are in tensors of other names: {_listed(renamed)}"
        remarks.append(finding(Code.WEIGHTS_ASSUMED, message))
    if sites.unmatched:
        message = f"the weights kept their initial values, so no speedup is quoted: {sites.why_not}"
        remarks.append(finding(Code.WEIGHTS_NOT_CHANGED, message))
    if checks and all(check.launches == 0 for check in checks) and not refused:
        remarks.append(finding(Code.NO_LAUNCH, "none of the checked calls launched a kernel"))
    if any(check.precision != "float64" for check in checks):
        remarks.append(finding(Code.NOT_FLOAT64, "the expected values are the reference's own outputs, not float64"))
    return remarks


def _listed(assumed: Mapping[str, str]) -> str:
    others = f" and {len(assumed) - _NAMED} more" if len(assumed) > _NAMED else ""
    pairs = [name if name == own_name else f"{name} in {own_name}" for name, own_name in [*assumed.items()][:_NAMED]]
    return ", ".join(pairs) + others
