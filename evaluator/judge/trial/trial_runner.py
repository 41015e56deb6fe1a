"""One trial: fresh inputs, one call, a snapshot, a comparison. Checked and timed calls use the same trials."""

import contextlib
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence

import torch

from evaluator.devices.memory import SharedMemory
from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.findings import Code, entry_of, finding
from evaluator.judge.answer.answer_judge import AnswerJudge, Judged
from evaluator.judge.answer.benchmark_opinion import benchmark_accepts
from evaluator.judge.answer.cause import cause_of
from evaluator.judge.answer.evidence import OWN_CHECK
from evaluator.judge.answer.other_values import of_other_values
from evaluator.judge.answer.output_checks import outlined, views
from evaluator.judge.answer.wrong_pattern import near_tolerance
from evaluator.judge.clock.clock import Clock, ClockedCall
from evaluator.judge.compare.tensor_comparison import Comparison, begin
from evaluator.judge.numerics.precision_sampler import Drawn
from evaluator.judge.numerics.reduced_precision import ENOUGH
from evaluator.judge.numerics.rounded_reference import ReferenceCall
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.changing_weights import NO_SITES, CallWeights, Sites
from evaluator.judge.reference.derived_seeds import derived
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE, DistributionMix
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.setup.wrong_answers import is_noise
from evaluator.judge.tensors.output_views import some_bits
from evaluator.judge.tensors.pytree import LaidOut
from evaluator.judge.trial.call_driver import CallDriver
from evaluator.judge.trial.trial import EarlierWeightsTrial, Trial
from evaluator.protocol import model_call
from evaluator.records import (
    Check,
    CheckRule,
    Fault,
    Finding,
    Profile,
    RowSite,
    Schedule,
    Status,
    ToleranceRule,
    seed_text,
)

_AUTHORS_CHECK = "The problem's author can let check compare the outputs with the inputs."
_AUTHORS_ALONE = "Rounding decides under all weights of these calls: only the problem's author can change the output."


class TrialRunner:
    """Runs trials of one runner: draws inputs, makes calls, and records the checks of answers."""

    def __init__(
        self,
        reference: Reference,
        clock: Clock,
        memory: SharedMemory,
        rule: ToleranceRule,
        comparison: Comparison = begin,
        distribution_mix: DistributionMix = AS_GIVEN_ALONE,
        *,
        first_call_s: float = 0.0,
        sites: Sites = NO_SITES,
        source: str = "",
        trusted: bool = False,
    ) -> None:
        """Compare answers of the runner behind `clock` with `reference`.

        Input distributions come from `distribution_mix`. `first_call_s` raises the time limit of the first call until
        all work is queued. Weights change between calls if `sites` locates the weights in the runner. The submission's
        text `source` explains errors of rounding. Values of a `trusted` runner, one of the reference, are no samples of
        a submission's precision.
        """
        self._is_trusted = trusted
        self._source = source
        self._sites = sites
        self._first_seed: int | None = None
        self._calls_s: list[float] = []
        self._reference = reference
        self._clock = clock
        self._distribution_mix = distribution_mix
        self._explained: set[bool] = set()
        """Kinds of values with an explained wrong answer: the problem's own (True), and others."""
        self._answers = AnswerJudge(
            reference, clock, memory, rule, reference.outline, comparison, distribution_mix, sites
        )
        self._precision = self._answers.precision
        precomputed_output = self._answers.precomputed_output
        self.call_driver = CallDriver(reference, clock, memory, sites, precomputed_output, first_call_s)

    @property
    def earlier_weights(self) -> list[CallWeights]:
        """Earlier weights that a copy made once may hold: the constructed weights, and the first call's."""
        if not self._sites.change:
            return []
        return [CallWeights(None), *([] if self._first_seed is None else [CallWeights(self._first_seed)])]

    def run(
        self,
        index: int,
        seed: int,
        *,
        timeout_s: float,
        schedule: Schedule | None = None,
        quick: bool = False,
        own_values: bool = False,
        explain: bool = True,
        second_opinion: bool = False,
        wrong: Trial | None = None,
    ) -> Trial:
        """Draw inputs from `seed`, run one call, compare the outputs. No work of the call continues afterwards.

        The weights follow from the call's seed. With `quick`, outputs bit-equal to the plain
        reference's are accepted without float64: the tolerance is a multiple of the reference's own error, and admits
        equal outputs anyway. No row cancels in the first call of a runner, and none with `own_values`. `explain` looks
        for the cause of wrong values, and takes longer than the comparison. With `second_opinion`, KernelBench's rule
        is asked too. An answer with the bits of `wrong`, an answer to the same call, is not compared again: it is
        wrong.
        """
        started = time.monotonic()
        self.set_weights(seed)
        if self._first_seed is None:
            self._first_seed = self._weights_of(seed)
        plan = self._plan(seed, () if own_values else self._row_sites(index))
        wanted = self._answers.begin(plan)
        placed, answer = self.call_driver.ask(index, plan, wanted, schedule=schedule, timeout_s=timeout_s)
        if isinstance(answer, Fault):
            return Trial(None, answer, 0.0, copied=False, profile=plan.profile)
        verified = self._verified(
            index,
            plan,
            wanted,
            placed,
            answer,
            schedule=schedule,
            quick=quick,
            counts=not self._is_trusted,
            explain=explain,
            second_opinion=second_opinion,
            wrong=wrong,
        )
        del plan, wanted, placed, answer  # Evidence may draw inputs, and memory may hold those of one call, not of two.
        if verified.check is not None:
            check = self._answers.evidence.measured(verified.check)
            if check.ok and check.profile is Profile.AS_GIVEN and not self._is_trusted:
                self._precision.draw_lots(seed, check)
            verified = verified._replace(check=check)
        self._calls_s.append(time.monotonic() - started)
        return verified

    @property
    def pace_s(self) -> float:
        """Mean duration of an answered call with its comparison, without the first call; 0.0 if there was no other."""
        return statistics.fmean(self._calls_s[1:] or [0.0])

    def run_with_weights(
        self,
        index: int,
        seed: int,
        weights: CallWeights,
        *,
        timeout_s: float,
        schedule: Schedule | None = None,
        own_values: bool = False,
    ) -> EarlierWeightsTrial | None:
        """Repeat the call of `seed` with `weights`; `own_values` as in `run`.

        None if the answer has no values, or if the outputs have other shapes with the call's weights; if the call has
        the same weights; if memory does not suffice for a second comparison, which decides no verdict.
        """
        if weights.seed == self._weights_of(seed):
            return None
        row_sites = () if own_values else self._row_sites(index)
        self._reference.set_weights(weights.seed)
        plan = self._plan(seed, row_sites)
        wanted = self._answers.begin(plan)
        placed, answer = self.call_driver.ask(index, plan, wanted, schedule=schedule, timeout_s=timeout_s)
        if isinstance(answer, Fault):
            return None
        judged = self._answers.judge(answer, wanted, plan, placed, None)
        if not judged.tensors:
            return None
        # An answer may be right in memory of an earlier output, or in a weight's.
        is_right = all(check.ok for check in judged.tensors)
        with_earlier, snapshots = judged.tensors, [view._replace(expected=0.0) for view in judged.snapshots]
        some = some_bits(snapshots)
        del plan, wanted, placed, judged  # Memory may hold the inputs and expected values of one call, not of two.
        self.set_weights(seed)
        with_current = None
        with contextlib.suppress(ProblemError, MemoryError), out_of_memory():
            plan = self._plan(seed, row_sites)
            wanted = self.call_driver.wanted = self._answers.begin(plan)
            with_current = self._answers.compared(plan, wanted, snapshots)
        return None if with_current is None else EarlierWeightsTrial(with_earlier, with_current, is_right, some)

    def _plan(self, seed: int, row_sites: Sequence[RowSite]) -> CallPlan:
        """Plan the call of `seed` with the reference's current weights."""
        mix = self._distribution_mix
        return CallPlan(self._reference, seed, profile=mix.pick(seed), decoy=mix.decoy(seed), row_sites=row_sites)

    def _verified(
        self,
        index: int,
        plan: CallPlan,
        wanted: model_call.Result,
        placed: LaidOut,
        answer: ClockedCall,
        *,
        schedule: Schedule | None = None,
        quick: bool = True,
        counts: bool = True,
        explain: bool = True,
        second_opinion: bool = False,
        wrong: Trial | None = None,
    ) -> Trial:
        """Compare the outputs of a call. Only a call that `counts` has samples for the precision check."""
        honest = plan.honest() if quick else None
        wrong_bits = b"" if wrong is None else wrong.some_bits
        judged = self._answers.judge(answer, wanted, plan, placed, honest, samples=counts, wrong_bits=wrong_bits)
        if wrong is not None and judged.is_repeated:
            return wrong
        is_asked = second_opinion and not self._answers.is_by_benchmark
        problem = judged.problem
        benchmark_ok = benchmark_accepts(plan, judged.snapshots, is_right=problem is None) if is_asked else None
        if explain and problem is not None and problem.code == Code.WRONG_VALUES.value:
            problem = self._with_cause(problem, plan, judged)
        problem = of_other_values(problem, self._answers.other_values(judged), judged.tensors)
        check = Check(
            index=index,
            profile=plan.profile,
            seed=seed_text(plan.seed),
            schedule=schedule,
            launches=answer.done.launches,
            ok=problem is None,
            precision="float64" if judged.in_float64 else "reference",
            tensors=judged.tensors,
            finding=problem,
            benchmark_ok=benchmark_ok,
        )
        fault = None if problem is None else Fault(entry_of(problem).status, problem)
        copied = any(view.copied for view in views(answer.done.outputs))
        some = b"" if problem is None else some_bits(judged.snapshots)
        elapsed_ms, host_ms, prepared_ms, lag_ms = answer.elapsed_ms, answer.host_ms, answer.prepared_ms, answer.lag_ms
        return Trial(
            check, fault, elapsed_ms, copied, host_ms, prepared_ms, lag_ms, plan.profile, some, answer.done.refused
        )

    @property
    def window_calls(self) -> int:
        """Largest number of calls in a window, after the first call; 1 without windows."""
        return self.call_driver.window_calls

    def plans(self, index: int, seeds: Sequence[int]) -> list[CallPlan]:
        """Return the plans of calls with the problem's own values, and weights that follow from the first seed."""
        self.set_weights(seeds[0])
        rows = self._row_sites(index)
        return [CallPlan(self._reference, seed, row_sites=rows) for seed in seeds]

    def set_weights(self, seed: int) -> None:
        """Give the reference the weights of the call with `seed`."""
        self._reference.set_weights(self._weights_of(seed))

    def compared(self, index: int, plan: CallPlan, placed: LaidOut, answer: ClockedCall) -> Trial:
        """Compare the outputs of a call made by `plan`, while its weights are the reference's."""
        wanted = self._answers.begin(plan)
        return self._verified(index, plan, wanted, placed, answer, counts=False)

    def _row_sites(self, index: int) -> Sequence[RowSite]:
        """Return where rows cancel in a call. The first call has the problem's own values alone."""
        return self._distribution_mix.row_sites if index else ()

    def own_values_seed(self) -> int:
        """Return a fresh seed of a call with the problem's own input values."""
        return self._distribution_mix.seed_for(Profile.AS_GIVEN)

    def has_own_values(self, seed: int) -> bool:
        """Return whether a call of `seed` has the problem's own input values."""
        return self._distribution_mix.pick(seed) is Profile.AS_GIVEN

    def _weights_of(self, seed: int) -> int | None:
        """Return the seed of a call's weights; None for the constructed weights."""
        return derived(seed, b"weights") if self._sites.change else None

    @property
    def lacks_calls(self) -> bool:
        """Whether an output has too few elements for the precision check, so that more correct calls are needed.

        Calls bit-equal to the plain reference count too, so no call should be `quick` meanwhile.
        """
        if self._reference.problem.check is CheckRule.INSTEAD:
            return False
        outputs = outlined(self.call_driver.wanted).values()
        few = any(0 < tensor.numel() < ENOUGH and tensor.dtype == torch.float32 for tensor in outputs)
        return few and self._answers.rule is ToleranceRule.MEASURED and self._precision.lacks_calls

    @property
    def lacks_errors(self) -> bool:
        """Whether a test of the answers' precision over several calls has begun, and has too few errors."""
        return self._answers.rule is ToleranceRule.MEASURED and self._precision.lacks_errors

    @property
    def empty_ms(self) -> float:
        """Duration of an empty call's own work, in ms."""
        return self._clock.empty_ms

    def run_empty(self, *, timeout_s: float, forked: bool = False) -> Iterator[ClockedCall | Fault]:
        """Yield the answers of empty calls, without the model's own work, in a runner that has answered before.

        With `forked`, on two streams. All calls share the same inputs, since the model never reads the inputs.
        """
        seed = fresh_seed()
        self.set_weights(seed)
        plan = CallPlan(self._reference, seed, random_seed=0)
        for index in itertools.count():
            _, answer = self.call_driver.ask(index, plan, None, schedule=None, timeout_s=timeout_s, forked=forked)
            yield answer

    def _with_cause(self, problem: Finding, plan: CallPlan, judged: Judged) -> Finding:
        """Return a finding for wrong values with their cause, if certain.

        The cause of later calls with the same kind of values, the problem's own or others, is the same.
        """
        path = problem.details.get("path")
        sample = self._precision.sample
        if match := sample.lowered(sample.call(plan), path):
            name = match.name(sample.outputs.get(match.path))
            message = f"{problem.message}; the errors are those of {name}"
            return finding(Code.LOWER_PRECISION, message, path=match.path)
        tensor = next((view.tensor for view in judged.snapshots if view.path == path), None)
        check = next((check for check in judged.tensors if check.path == path), None)
        is_own = plan.profile is Profile.AS_GIVEN
        if tensor is None or check is None:
            return problem
        cause = near_tolerance(check, self._source)
        if is_own not in self._explained:
            self._explained.add(is_own)
            cause = cause_of(plan, check, tensor, self._answers.limits(check.path, tensor)) or cause
        if cause is None:
            return problem
        message = f"{problem.message}; {cause.clause}"
        return finding(Code.WRONG_VALUES, message, next_step=cause.next_step, path=path)

    @property
    def lacks_proof(self) -> bool:
        """Whether more calls may prove an output right."""
        return self._answers.rule is ToleranceRule.MEASURED and bool(self._answers.evidence.unproven)

    def unproven(self) -> Fault | None:
        """Return an inconclusive fault if all calls passed, and an output has no proof that it could have."""
        evidence = self._answers.evidence
        if self._answers.rule is not ToleranceRule.MEASURED or not evidence.powers:
            return None
        paths = evidence.unproven
        if evidence.proves_any:
            paths = self._meaningful(paths)
        if not paths:
            return None
        if paths[0] == OWN_CHECK:
            message = f"{OWN_CHECK} accepts an output of zeros, of NaN, or of other inputs"
            return Fault(Status.INCONCLUSIVE, finding(Code.ROUNDING_DECIDES, message, next_step=_AUTHORS_CHECK))
        cause = "" if self._sites.why_not is None else f"; the weights are the same in all calls: {self._sites.why_not}"
        message = (
            f"{paths[0]}: no call could have told a wrong answer: in most elements a wrong one differs by at most "
            f"{evidence.powers[paths[0]]:.2g} times the tolerance{cause}"
        )
        step = _AUTHORS_ALONE if self._sites.change else None
        return Fault(Status.INCONCLUSIVE, finding(Code.ROUNDING_DECIDES, message, next_step=step, path=paths[0]))

    def _meaningful(self, paths: list[str]) -> list[str]:
        """Return the outputs that vary with the inputs, and by more than rounding, under other weights too."""
        seed = fresh_seed()
        if self._reference.weights.names:
            self._reference.set_weights(derived(seed, b"weights"))
        try:
            return [path for path in paths if not is_noise(self._reference, seed, path)]
        finally:
            self._reference.set_weights(None)

    def look_closely(self) -> Trial | None:
        """Check the errors of correct calls for reduced precision, which may lie well within the tolerance.

        Return a failed trial, or None. KernelBench's rule allows any error within the tolerance. Raises MemoryError.
        """
        if self._answers.rule is not ToleranceRule.MEASURED:
            return None
        check = self._precision.look_closely(self._reference_call)
        if check is None or check.finding is None:
            return None
        return Trial(check, Fault(Status.WRONG_RESULT, check.finding), 0.0, copied=False)

    def _reference_call(self, drawn: Drawn) -> ReferenceCall:
        self._reference.set_weights(self._weights_of(drawn.seed))
        return drawn.sample.call(CallPlan(self._reference, drawn.seed, row_sites=self._row_sites(drawn.check.index)))
