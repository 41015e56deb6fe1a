"""One trial: fresh inputs, one call, a snapshot, a comparison. Checked and timed calls use the same trials."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from evaluator.devices.memory import SharedMemory
from evaluator.findings import Code, finding
from evaluator.judge.clock.clock import Clock, ClockedCall
from evaluator.judge.compare.tensor_comparison import Comparison, Reading, Sides, begin, joined, rows_from
from evaluator.judge.compare.tolerance import Bounds, Rounding, bounds
from evaluator.judge.diagnosis.cause import cause_of
from evaluator.judge.inputs.cancelling_rows import RowSite, Slices
from evaluator.judge.inputs.changing_weights import NO_SITES, Sites, Worn
from evaluator.judge.inputs.derived_seeds import derived
from evaluator.judge.integrity.output_checks import (
    changed_input,
    gradient_pairs,
    late,
    late_on_host,
    outlined,
    reused,
    same_as,
    views,
    wrong_values,
)
from evaluator.judge.integrity.precomputed_output import PrecomputedOutputCheck
from evaluator.judge.numerics.precision_sampler import Drawn, PrecisionWatch
from evaluator.judge.numerics.reduced_precision import ENOUGH
from evaluator.judge.numerics.rounded_reference import ReferenceCall
from evaluator.judge.numerics.rounding_of_call import may_be_rounding, rounding_of_call
from evaluator.judge.numerics.summation_orders import larger
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Expected, Honest, Reference, by_path
from evaluator.judge.setup.distribution_mix import AS_GIVEN_ALONE, DistributionMix
from evaluator.judge.setup.seed_book import fresh_seed
from evaluator.judge.tensors.memory_overlap import layouts, lent_weights, shared_elements, views_laid_out
from evaluator.judge.tensors.output_views import OutputViews, output_views
from evaluator.judge.tensors.pytree import LaidOut, Pair, Value, pair_up
from evaluator.judge.trial.call_driver import CallDriver
from evaluator.protocol import model_call
from evaluator.records import (
    Check,
    Fault,
    Finding,
    Profile,
    Schedule,
    Status,
    TensorCheck,
    ToleranceRule,
    seed_text,
)


class Trial(NamedTuple):
    """Result of one call: the check, the fault unless the call passed, and the clock's measurements."""

    check: Check | None
    fault: Fault | None
    elapsed_ms: float
    copied: bool
    host_ms: float | None = None
    prepared_ms: float | None = None
    lag_ms: float | None = None
    profile: Profile = Profile.AS_GIVEN


class _Judged(NamedTuple):
    """Comparisons of an answer, whether all used float64, the problem found, and views of the outputs."""

    tensors: list[TensorCheck] = []
    in_float64: bool = True
    problem: Finding | None = None
    snapshots: list[OutputViews] = []


class TrialRunner:
    """Runs trials of one runner. Owns the shared memory and remembers the addresses of the last outputs."""

    def __init__(
        self,
        reference: Reference,
        clock: Clock,
        memory: SharedMemory,
        rule: ToleranceRule,
        outline: Value,
        comparison: Comparison = begin,
        distribution_mix: DistributionMix = AS_GIVEN_ALONE,
        *,
        first_call_s: float = 0.0,
        sites: Sites = NO_SITES,
    ) -> None:
        """Compare answers of the runner behind `clock` with `reference`, with output shapes of `outline`.

        Input distributions come from `distribution_mix`. `outline` matters only if the reference is computed in blocks.
        `first_call_s` raises the time limit of the first call until all work is queued. Weights change between calls if
        `sites` locates the weights in the runner.
        """
        self._sites = sites
        self._first_seed: int | None = None
        self._reference = reference
        self._clock = clock
        self._outputs = memory.outputs
        self._weights_lie = sites.layouts(memory.outputs)
        self._rule = rule
        self._outline = outline
        self._comparison = comparison
        self._distribution_mix = distribution_mix
        self._profile = Profile.AS_GIVEN
        self._is_explained = False
        self._of_call: dict[str, Rounding] = {}
        self._slices: dict[str, list[Slices]] = {}
        self._last_storages: dict[str, tuple[int, int]] = {}
        self._precision = PrecisionWatch(reference.problem.precision)
        self._memory_samples = clock.memory_samples
        self._precomputed_output = (
            None if self._memory_samples is None else PrecomputedOutputCheck(self._memory_samples)
        )
        self.call_driver = CallDriver(reference, clock, memory, sites, self._precomputed_output, first_call_s)

    @property
    def earlier_weights(self) -> list[Worn]:
        """Earlier weights that a copy made once may hold: the constructed weights, and the first call's."""
        if not self._sites.change:
            return []
        return [Worn(None), *([] if self._first_seed is None else [Worn(self._first_seed)])]

    def run(
        self,
        index: int,
        seed: int,
        *,
        timeout_s: float,
        schedule: Schedule | None = None,
        quick: bool = False,
        worn: Worn | None = None,
        own_values: bool = False,
    ) -> Trial:
        """Draw inputs from `seed`, run one call, compare the outputs. No work of the call continues afterwards.

        The weights follow from the call's seed, or are the `worn` weights. With `quick`, outputs bit-equal to the plain
        reference's are accepted without float64: the tolerance is a multiple of the reference's own error, and admits
        equal outputs anyway. No row cancels in the first call of a runner, and none with `own_values`.
        """
        self._reference.wear(self._weights_of(seed) if worn is None else worn.seed)
        if self._first_seed is None:
            self._first_seed = self._weights_of(seed)
        profile = self._profile = self._distribution_mix.pick(seed)
        sites = () if own_values else self._row_sites(index)
        decoy = self._distribution_mix.decoy(seed)
        plan = CallPlan(self._reference, seed, profile=profile, decoy=decoy, row_sites=sites)
        wanted = plan.wanted(model_call.Result(self._outline, None))
        self._slices = _fitting(plan.slices, wanted)
        self._precision.begin(len(plan.blocks), self._slices)
        placed, answer = self.call_driver.ask(index, plan, wanted, schedule=schedule, timeout_s=timeout_s)
        if isinstance(answer, Fault):
            return Trial(None, answer, 0.0, copied=False, profile=profile)
        return self._verified(index, plan, wanted, placed, answer, schedule=schedule, quick=quick)

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
    ) -> Trial:
        """Compare the outputs of a call. A correct call with the problem's own values `counts` for its precision."""
        honest = plan.honest() if quick else None
        self._of_call = {}
        judged = self._judge(answer, wanted, plan, placed, honest)
        problem = judged.problem
        if problem is not None and problem.code == Code.WRONG_VALUES.value:
            problem = self._with_cause(problem, plan, judged)
        problem = _of_other_values(problem, self._other_values(judged))
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
        )
        if problem is None and plan.profile is Profile.AS_GIVEN and counts:
            self._precision.draw_lots(plan.seed, check)
        fault = None if problem is None else Fault(_status(problem), problem)
        copied = any(view.copied for view in views(answer.done.outputs))
        return Trial(
            check, fault, answer.elapsed_ms, copied, answer.host_ms, answer.prepared_ms, answer.lag_ms, plan.profile
        )

    @property
    def window_calls(self) -> int:
        """Largest number of calls in a window, after the first call; 1 without windows."""
        return self.call_driver.window_calls

    def plans(self, index: int, seeds: Sequence[int]) -> list[CallPlan]:
        """Return the plans of calls with the problem's own values, and weights that follow from the first seed."""
        self.wear(seeds[0])
        rows = self._row_sites(index)
        return [CallPlan(self._reference, seed, row_sites=rows) for seed in seeds]

    def wear(self, seed: int) -> None:
        """Give the reference the weights of the call with `seed`."""
        self._reference.wear(self._weights_of(seed))

    def compared(self, index: int, plan: CallPlan, placed: LaidOut, answer: ClockedCall) -> Trial:
        """Compare the outputs of a call made by `plan`, while its weights are the reference's."""
        self._profile = plan.profile
        wanted = plan.wanted(model_call.Result(self._outline, None))
        self._slices = _fitting(plan.slices, wanted)
        self._precision.begin(len(plan.blocks), self._slices)
        return self._verified(index, plan, wanted, placed, answer, counts=False)

    def _other_values(self, judged: _Judged) -> str | None:
        """Return what the wrong values of a call come from, if other values than the problem's own."""
        if self._profile is not Profile.AS_GIVEN:
            return self._profile.value
        wrong = [(check.path, check.first_mismatch.index) for check in judged.tensors if check.first_mismatch]
        cancelled = [
            any(index[each.dim] in each.indices for each in self._slices.get(path, [])) for path, index in wrong
        ]
        return "rows with random signs" if cancelled and all(cancelled) else None

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
        outputs = outlined(self.call_driver.wanted).values()
        few = any(0 < tensor.numel() < ENOUGH and tensor.dtype == torch.float32 for tensor in outputs)
        return few and self._rule is not ToleranceRule.KERNELBENCH and self._precision.lacks_calls

    @property
    def empty_ms(self) -> float:
        """Duration of an empty call's own work, in ms."""
        return self._clock.empty_ms

    def run_empty(self, *, timeout_s: float, forked: bool = False) -> Iterator[ClockedCall | Fault]:
        """Yield the answers of empty calls, without the model's own work, in a runner that has answered before.

        With `forked`, on two streams. All calls share the same inputs, since the model never reads the inputs.
        """
        seed = fresh_seed()
        self.wear(seed)
        plan = CallPlan(self._reference, seed, random_seed=0)
        for index in itertools.count():
            _, answer = self.call_driver.ask(index, plan, None, schedule=None, timeout_s=timeout_s, forked=forked)
            yield answer

    def _judge(
        self,
        answer: ClockedCall,
        wanted: model_call.Result,
        plan: CallPlan,
        placed: LaidOut,
        honest: Iterable[Honest] | None,
    ) -> _Judged:
        """Compare an answer, block by block. An answer counts as wrong until all outputs are compared.

        Outputs equal to given `honest` answers are compared no further.
        """
        pairs = pair_up(wanted.outputs, answer.done.outputs)
        if isinstance(pairs, Finding):
            return _Judged(problem=pairs)
        if wanted.gradients is not None:
            found = gradient_pairs(wanted.gradients, answer.done)
            if isinstance(found, Finding):
                return _Judged(problem=found)
            pairs += found
        snapshots = output_views(pairs, self._outputs, self._reference.number)
        if isinstance(snapshots, Finding):
            return _Judged(problem=snapshots)
        on_host = None if self._memory_samples is None else late_on_host(pairs, self._memory_samples)
        too_late = late(snapshots, answer.samples or {}) or on_host
        if too_late is not None:
            return _Judged(problem=too_late)
        # In blocks, the full values never exist at once; the memory layouts are those of the first call.
        own = self._reference.layouts if wanted.outputs is self._outline else layouts(by_path(wanted))
        shared = shared_elements(views_laid_out(pairs), own)
        if honest is not None and (owned := same_as(honest, snapshots, self._reference.values)) is not None:
            earlier = self._not_of_this_call(snapshots, pairs, owned)
            problem = shared or changed_input(placed, self._reference.written) or earlier
            return _Judged(in_float64=False, problem=problem)
        checks, borrowed, in_float64 = self._compared(plan, snapshots)
        problem = next((problem for check in checks if (problem := wrong_values(check)) is not None), None)
        if problem is not None and self._is_rounding_measured(plan, checks):
            self._precision.begin(len(plan.blocks), self._slices)
            checks, borrowed, in_float64 = self._compared(plan, snapshots)
            problem = next((problem for check in checks if (problem := wrong_values(check)) is not None), None)
        if problem is not None and self._precomputed_output is not None:
            problem = self._precomputed_output.unwritten(pairs) or problem
        # Always checked: the next call is compared with the addresses recorded here.
        earlier = self._not_of_this_call(snapshots, pairs, borrowed)
        problem = problem or shared or changed_input(placed, self._reference.written) or earlier
        return _Judged(checks, in_float64, problem, snapshots)

    def _compared(self, plan: CallPlan, snapshots: list[OutputViews]) -> tuple[list[TensorCheck], frozenset[str], bool]:
        """Compare all outputs, block by block. Return also which are borrowed, and whether all in float64."""
        parts: dict[str, list[Reading]] = {snapshot.path: [] for snapshot in snapshots}
        starts = dict.fromkeys(parts, 0)
        borrowed: frozenset[str] = frozenset()
        in_float64 = True
        for number, block in enumerate(plan.expected()):
            borrowed, in_float64 = borrowed | block.borrowed, in_float64 and block.in_float64
            self._begin(number, block, snapshots, parts, starts)
            del block  # Free the block before the next block is computed.
        return [joined([read() for read in readings]) for readings in parts.values()], borrowed, in_float64

    def _is_rounding_measured(self, plan: CallPlan, checks: list[TensorCheck]) -> bool:
        """Measure the rounding of a wrong call, and return whether the tolerance of an output is larger for it."""
        if self._rule is ToleranceRule.KERNELBENCH or not may_be_rounding(checks):
            return False
        before = {check.path: self._rounding(check.path) for check in checks}
        self._of_call = rounding_of_call(plan)
        return any(self._rounding(path) != known for path, known in before.items())

    def _with_cause(self, problem: Finding, plan: CallPlan, judged: _Judged) -> Finding:
        """Return a finding for wrong values with their cause, if certain. The cause of later calls is the same."""
        path = problem.details.get("path")
        sample = self._precision.sample
        if found := sample.lowered(sample.call(plan), path):
            message = f"{problem.message}; the errors are those of {found.format.value}"
            return finding(Code.LOWER_PRECISION, message, path=found.path)
        tensor = next((view.tensor for view in judged.snapshots if view.path == path), None)
        check = next((check for check in judged.tensors if check.path == path), None)
        if self._is_explained or tensor is None or check is None:
            return problem
        self._is_explained = True
        clause = cause_of(plan, check, tensor, self._limits(check.path, tensor.dtype))
        return problem if clause is None else finding(Code.WRONG_VALUES, f"{problem.message}; {clause}", path=path)

    def look_closely(self) -> Trial | None:
        """Check the errors of correct calls for reduced precision, which may lie well within the tolerance.

        Return a failed trial, or None. KernelBench's rule allows any error within the tolerance. Raises MemoryError.
        """
        if self._rule is ToleranceRule.KERNELBENCH:
            return None
        check = self._precision.look_closely(self._reference_call)
        if check is None or check.finding is None:
            return None
        return Trial(check, Fault(Status.WRONG_RESULT, check.finding), 0.0, copied=False)

    def _reference_call(self, drawn: Drawn) -> ReferenceCall:
        self._reference.wear(self._weights_of(drawn.seed))
        return drawn.sample.call(CallPlan(self._reference, drawn.seed, row_sites=self._row_sites(drawn.check.index)))

    def _begin(
        self,
        number: int,
        block: Expected,
        snapshots: list[OutputViews],
        parts: dict[str, list[Reading]],
        starts: dict[str, int],
    ) -> None:
        """Start the comparison of each output's rows in a block of the reference; `starts` holds the first row."""
        exact, honest = self._reference.values(block.exact), self._reference.values(block.honest)
        for path, _, tensor, _ in snapshots:
            if parts[path] and not tensor.dim():
                continue  # A scalar is the same for all blocks (`Reference.settle`).
            sides = rows_from(Sides(tensor, exact[path], honest[path]), starts[path])
            parts[path].append(self._compare(path, sides))
            self._precision.add(number, path, sides, in_float64=block.in_float64, start=starts[path])
            starts[path] += sides.honest.shape[0] if sides.honest.dim() else 0

    def _compare(self, path: str, sides: Sides) -> Reading:
        """Start the comparison of an output, or of the rows in one block."""
        actual, exact, honest = sides
        limits = self._limits(path, honest.dtype)
        return self._comparison(path, Sides(actual, exact if limits else exact.to(honest.dtype), honest), limits)

    def _limits(self, path: str, dtype: torch.dtype) -> Bounds | None:
        """Return the bounds of an output of the current call; None for integers and booleans."""
        if not (dtype.is_floating_point or dtype.is_complex):
            return None
        real = torch.empty(0, dtype=dtype).real.dtype if dtype.is_complex else dtype
        return bounds(self._rule, self._reference.problem, real, self._rounding(path))

    def _rounding(self, path: str) -> Rounding:
        """Return the rounding of an output: as measured beforehand, or as measured for the current call if larger."""
        known = self._distribution_mix.rounding_of(self._profile, path, cancelling=path in self._slices)
        return larger(known, self._of_call[path]) if path in self._of_call else known

    def _not_of_this_call(
        self, snapshots: list[OutputViews], pairs: list[Pair], exempt: frozenset[str]
    ) -> Finding | None:
        """Find an output not made in this call: located in other memory, or present before the inputs.

        If the reference itself returns a view of a weight or of an input, submissions may too.
        """
        reused = self._reused(snapshots, exempt)
        lent = lent_weights(views_laid_out(pairs), self._weights_lie, exempt)
        stood = None if self._precomputed_output is None else self._precomputed_output.found(pairs, exempt)
        return reused or lent or stood

    def _reused(self, snapshots: list[OutputViews], exempt: frozenset[str]) -> Finding | None:
        """Find an output in memory of the last call's outputs, still held by the runner."""
        found, self._last_storages = reused(snapshots, self._last_storages, exempt)
        return found


def _fitting(slices: dict[str, list[Slices]], wanted: model_call.Result) -> dict[str, list[Slices]]:
    """Return the slices that the outputs have."""
    found: dict[str, list[Slices]] = {}
    for path, value in by_path(wanted).items():
        fitting = [each for each in slices.get(path, []) if isinstance(value, torch.Tensor) and each.fit(value.shape)]
        found |= {path: fitting} if fitting else {}
    return found


def _of_other_values(problem: Finding | None, values: str | None) -> Finding | None:
    """Return the finding for wrong values of a call; a finding of its own if the inputs had other `values`.

    The first checked call has the problem's own inputs, so a call with other inputs follows correct answers.
    """
    codes = (Code.WRONG_VALUES.value, Code.NOT_FINITE.value)
    if problem is None or values is None or problem.code not in codes:
        return problem
    message = f"correct for the problem's own inputs, wrong for {values}: {problem.message}"
    return finding(Code.WRONG_ON_OTHER_VALUES, message, path=problem.details.get("path"), profile=values)


def _status(problem: Finding) -> Status:
    return Status.REJECTED if problem.code == Code.MALFORMED_FRAME.value else Status.WRONG_RESULT
