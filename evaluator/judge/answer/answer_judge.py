"""Comparison of a call's answer with the reference, block by block, and with the outputs of the last call."""

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

import torch
from msgspec.structs import replace

from evaluator.devices.memory import SharedMemory
from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.findings import Code, finding
from evaluator.judge.answer.benchmark_opinion import refusal_of_benchmark
from evaluator.judge.answer.call_limits import CallLimits
from evaluator.judge.answer.evidence import Evidence
from evaluator.judge.answer.output_checks import (
    changed_input,
    gradient_pairs,
    late,
    late_on_host,
    reused,
    same_as,
    wrong_values,
)
from evaluator.judge.answer.precomputed_output import PrecomputedOutputCheck
from evaluator.judge.clock.clock import Clock, ClockedCall
from evaluator.judge.compare.limits import with_flips, with_scales
from evaluator.judge.compare.row_sizes import has_columns, is_vector_of_few
from evaluator.judge.compare.tensor_comparison import Comparison, Limit, Reading, Sides, joined, rows_from
from evaluator.judge.compare.tolerance import Bounds, around_reference
from evaluator.judge.numerics.precision_sampler import PrecisionWatch
from evaluator.judge.reference.author_check import OUT_OF_MEMORY, refusal, with_answers
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.cancelling_rows import ROWS_NAME, Slices, slices_within
from evaluator.judge.reference.changing_weights import Sites
from evaluator.judge.reference.reference import Expected, Honest, Reference, by_path
from evaluator.judge.setup.distribution_mix import DistributionMix
from evaluator.judge.setup.equal_values import TieBreak, choosing, has_choice
from evaluator.judge.tensors.memory_overlap import layouts, lent_weights, shared_elements, views_laid_out
from evaluator.judge.tensors.output_views import OutputViews, output_views, some_bits
from evaluator.judge.tensors.pytree import AnswerPair, LaidOut, Value, pair_up
from evaluator.protocol import model_call
from evaluator.records import BenchmarkRule, CheckRule, Finding, Profile, TensorCheck, ToleranceRule

_MOST_OF_ROW = 1 << 22
"""Longer rows are compared in parts: each block has a long part, and copies of expected values take 96 MiB in fp32."""


class Judged(NamedTuple):
    """Comparisons of an answer, whether all used float64, the problem found, and views of the outputs."""

    tensors: list[TensorCheck] = []
    in_float64: bool = True
    problem: Finding | None = None
    snapshots: list[OutputViews] = []
    is_repeated: bool = False
    """Whether the answer has the bits of an earlier answer to the same call, and was not compared."""


class _Compared(NamedTuple):
    """Comparisons of all outputs, paths of outputs that may be borrowed, and whether all were in float64."""

    tensors: list[TensorCheck]
    borrowed: frozenset[str]
    in_float64: bool


class AnswerJudge:
    """Compares answers of one runner. Remembers the addresses of the last outputs, and samples errors."""

    def __init__(
        self,
        reference: Reference,
        clock: Clock,
        memory: SharedMemory,
        rule: ToleranceRule,
        outline: Value,
        comparison: Comparison,
        distribution_mix: DistributionMix,
        sites: Sites,
    ) -> None:
        """Compare with `reference` by `rule`, and with output shapes of `outline` if it is computed in blocks."""
        self._reference = reference
        self._outputs = memory.outputs
        self._weights_lie = sites.layouts(memory.outputs)
        is_kernelbench = reference.problem.benchmark is BenchmarkRule.KERNELBENCH
        self.rule = ToleranceRule.KERNELBENCH if rule is ToleranceRule.BENCHMARK and is_kernelbench else rule
        self.is_by_benchmark = self.rule is (ToleranceRule.KERNELBENCH if is_kernelbench else ToleranceRule.BENCHMARK)
        """Whether the rule of the problem's own benchmark decides."""
        self._outline = outline
        self._comparison = comparison
        self._distribution_mix = distribution_mix
        self._profile = Profile.AS_GIVEN
        self._slices: dict[str, list[Slices]] = {}
        self._fills: dict[str, float] = {}
        self._limits = self._limits_of_call()
        self._may_be_implied = rule is ToleranceRule.MEASURED and reference.problem.check is None
        counts = rule is ToleranceRule.MEASURED
        self.evidence = Evidence(reference, distribution_mix, counts=counts, unquoted=sites.unmatched)
        self._last_storages: dict[str, tuple[int, int]] = {}
        self._memory_samples = clock.memory_samples
        self.precision = PrecisionWatch(reference.problem.precision)
        self.precomputed_output = None if self._memory_samples is None else PrecomputedOutputCheck(self._memory_samples)

    def begin(self, plan: CallPlan) -> model_call.Result:
        """Expect the answer of a call by `plan`, and return the plain result, or its shapes."""
        self._profile = plan.profile
        wanted = plan.wanted(model_call.Result(self._outline, None))
        self._slices = slices_within(plan.slices, by_path(wanted))
        self._limits = self._limits_of_call()
        self.precision.begin(len(plan.blocks), self._slices)
        return wanted

    def judge(
        self,
        answer: ClockedCall,
        wanted: model_call.Result,
        plan: CallPlan,
        placed: LaidOut,
        honest: Iterable[Honest] | None,
        *,
        samples: bool = True,
        wrong_bits: bytes = b"",
    ) -> Judged:
        """Compare an answer, block by block. An answer counts as wrong until all outputs are compared.

        Outputs equal to given `honest` answers are compared no further. Without `samples`, neither are outputs so near
        that float64 could not refute them, and only wrong outputs are sampled for the precision check. Nor are answers
        with `wrong_bits` (`some_bits`), those of a wrong answer to the same call.
        """
        pairs = pair_up(wanted.outputs, answer.done.outputs)
        if isinstance(pairs, Finding):
            return Judged(problem=pairs)
        if wanted.gradients is not None:
            gradients = gradient_pairs(wanted.gradients, answer.done)
            if isinstance(gradients, Finding):
                return Judged(problem=gradients)
            pairs += gradients
        snapshots = output_views(pairs, self._outputs, self._reference.number)
        if isinstance(snapshots, Finding):
            return Judged(problem=snapshots)
        on_host = None if self._memory_samples is None else late_on_host(pairs, self._memory_samples)
        too_late = late(snapshots, answer.samples or {}) or on_host
        is_repeated = bool(wrong_bits) and some_bits(snapshots) == wrong_bits
        if too_late is not None or is_repeated:
            return Judged(problem=too_late, snapshots=snapshots, is_repeated=too_late is None)
        # In blocks, the full values never exist at once; the memory layouts are those of the first call.
        expected_layouts = self._reference.layouts if wanted.outputs is self._outline else layouts(by_path(wanted))
        shared = shared_elements(views_laid_out(pairs), expected_layouts)
        owned = None if honest is None else same_as(honest, snapshots, self._reference.values)
        may_be_near = honest is not None and not samples and owned is None
        if may_be_near and plan.plain is not None and self._is_implied(plan.plain, snapshots):
            owned = plan.plain.borrowed
        if owned is not None:
            earlier = self._not_of_this_call(snapshots, pairs, owned)
            return Judged(in_float64=False, problem=shared or self._changed_input(placed) or earlier)
        checks, borrowed, in_float64 = self._compared_by_own_rounding(plan, snapshots, samples=samples)
        problem = (
            self._limits.few_at_steps(plan, checks) or _first_wrong(checks) or self._refusal(plan, wanted, snapshots)
        )
        if problem is None and samples:
            self.evidence.look(plan, checks, snapshots, in_float64=in_float64)
            problem = self._fault_in_half()
        if problem is not None and self.precomputed_output is not None:
            problem = self.precomputed_output.unwritten(pairs) or problem
        # Always checked: the next call is compared with the addresses recorded here.
        earlier = self._not_of_this_call(snapshots, pairs, borrowed)
        problem = problem or shared or self._changed_input(placed) or earlier
        return Judged(checks, in_float64, problem, snapshots)

    def compared(
        self, plan: CallPlan, wanted: model_call.Result, snapshots: list[OutputViews]
    ) -> list[TensorCheck] | None:
        """Compare outputs of another call with the expected values of `plan`, after `begin(plan)` returned `wanted`.

        None if the outputs have other shapes: shapes may depend on inputs and weights.
        """
        values = self._reference.values(wanted)
        if any(not _has_shape_of(values.get(view.path), view.tensor) for view in snapshots):
            return None
        return self._compared(plan, snapshots).tensors

    def _is_implied(self, honest: Honest, snapshots: list[OutputViews]) -> bool:
        """Return whether all outputs are so near the plain reference that float64 could not refute any.

        After an output that is not, no further call is looked at: the next ones have the same rounding.
        """
        expected = self._reference.values(honest.result)
        readings = []
        for path, _, tensor, _ in snapshots if self._may_be_implied else ():
            value = expected[path]
            limit = self.limits(path, value) if isinstance(value, torch.Tensor) else None
            near = around_reference(limit) if isinstance(limit, Bounds) else None
            if near is None or value.is_complex() or value.shape != tensor.shape:
                self._may_be_implied = False
                break
            # Columns, and elements of a vector of few, have scales of their own: see `around_reference`.
            if has_columns(value.shape) or is_vector_of_few(value.shape):
                self._may_be_implied = False
                break
            readings.append(self._comparison(path, Sides(tensor, value, value), near))
        self._may_be_implied = self._may_be_implied and all(read().ok for read in readings)
        return self._may_be_implied

    def _compared_by_own_rounding(self, plan: CallPlan, snapshots: list[OutputViews], *, samples: bool) -> _Compared:
        """Compare all outputs, and again if wrong and the rounding of the call itself sets other limits.

        Nothing is compared if the problem's own check or the benchmark's rule decides instead.
        """
        instead = self._reference.problem.check is CheckRule.INSTEAD and self.rule is ToleranceRule.MEASURED
        if instead or self.rule is ToleranceRule.BENCHMARK:
            borrowed = frozenset() if plan.plain is None else plan.plain.borrowed
            return _Compared([], borrowed, in_float64=True)
        compared = self._compared(plan, snapshots, samples=samples)
        is_wrong = _first_wrong(compared.tensors) is not None
        if is_wrong and self._limits.measure(
            plan, compared.tensors, in_float64=compared.in_float64, compare=self._comparison
        ):
            self.precision.begin(len(plan.blocks), self._slices)
            compared = self._compared(plan, snapshots, samples=samples)
            compared = compared._replace(tensors=[self._void(check) for check in compared.tensors])
        compared = self._with_other_choices(plan, snapshots, compared)
        if not samples and _first_wrong(compared.tensors) is not None:
            # For the cause alone: outputs may change between two comparisons, and the second decides nothing. Nor may
            # its failure decide: a submission can take free memory between the two.
            self.precision.begin(len(plan.blocks), self._slices)
            with contextlib.suppress(ProblemError, MemoryError), out_of_memory():
                self._compared(plan, snapshots)
        return compared

    def _with_other_choices(self, plan: CallPlan, snapshots: list[OutputViews], compared: _Compared) -> _Compared:
        """Return comparisons with another choice of the reference among equal values, if all outputs are right then."""
        if _first_wrong(compared.tensors) is None or self.rule is not ToleranceRule.MEASURED:
            return compared
        # Neither an operation without support for the mode nor a submission that holds free memory decides.
        with contextlib.suppress(ProblemError, MemoryError), out_of_memory():
            for choice in TieBreak if has_choice(self._reference, plan.blocks[0]) else ():
                plan.forget()
                with choosing(choice):
                    other = self._compared(plan, snapshots, samples=False)
                if _first_wrong(other.tensors) is None:
                    compared = other
                    break
        plan.forget()
        return compared

    def _refusal(self, plan: CallPlan, wanted: model_call.Result, snapshots: list[OutputViews]) -> Finding | None:
        """Return the refusal of an answer by the problem's own check, or by the benchmark's rule if that decides.

        None too if the check refuses the reference's answer.
        """
        if self.rule is ToleranceRule.BENCHMARK:
            with out_of_memory():
                return refusal_of_benchmark(plan, snapshots)
        if self._reference.author_check is None or self.rule is ToleranceRule.KERNELBENCH:
            return None
        answer = with_answers(wanted.outputs, {view.path: view.tensor for view in snapshots})
        message = refusal(self._reference, plan.inputs, answer)
        if message is None:
            return None
        own_answer = self._reference.honest(plan.inputs, plan.random_seed, None).result.outputs
        own_message = refusal(self._reference, plan.inputs, own_answer)
        if own_message == OUT_OF_MEMORY:  # A submission may hold the memory: a lack of it excuses no answer.
            raise MemoryError(own_message)
        if own_message is not None:
            return None
        return finding(Code.CHECK_REFUSES, message)

    def _fault_in_half(self) -> Finding | None:
        """Return the fault of half-precision errors within the tolerance; a benchmark's rule allows any."""
        fault = self.precision.fault_in_half
        is_void = fault is not None and fault.details.get("path") in self._limits.void
        return None if is_void or self.rule is not ToleranceRule.MEASURED else fault

    def _void(self, check: TensorCheck) -> TensorCheck:
        """Return the comparison of an output that rounding decides: neither right nor wrong."""
        if check.ok or check.path not in self._limits.void:
            return check
        return replace(check, ok=True, error_ratio=None, mismatches=0, nonfinite=0, first_mismatch=None, power=0.0)

    def _compared(self, plan: CallPlan, snapshots: list[OutputViews], *, samples: bool = True) -> _Compared:
        """Compare all outputs, block by block."""
        parts: dict[str, list[Reading]] = {snapshot.path: [] for snapshot in snapshots}
        starts = dict.fromkeys(parts, 0)
        pieces: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        borrowed: frozenset[str] = frozenset()
        in_float64 = True
        for number, block in enumerate(plan.expected()):
            borrowed, in_float64 = borrowed | block.borrowed, in_float64 and block.in_float64
            self._begin(number, block, snapshots, parts, starts, pieces, samples=samples)
            del block  # Free the block before the next block is computed.
        for path, _, tensor, _ in snapshots:
            if path in pieces:
                exact, honest = (torch.cat(side) for side in zip(*pieces[path], strict=True))
                parts[path].append(self._compare(path, {path: Sides(tensor, exact, honest)}))
        checks = [joined([read() for read in readings]) for readings in parts.values()]
        if self.rule is ToleranceRule.MEASURED:
            checks = [with_flips(check, self._reference.problem) for check in checks]
        return _Compared(checks, borrowed, in_float64)

    def other_values(self, judged: Judged) -> str | None:
        """Return the distribution or rows behind wrong outputs; None for the problem's own values."""
        if self._profile is not Profile.AS_GIVEN:
            return self._profile.value
        wrong = [(check.path, check.first_mismatch.index) for check in judged.tensors if check.first_mismatch]
        cancelled = [
            any(index[rows.dim] in rows.indices for rows in self._slices.get(path, [])) for path, index in wrong
        ]
        return ROWS_NAME if cancelled and all(cancelled) else None

    def _begin(
        self,
        number: int,
        block: Expected,
        snapshots: list[OutputViews],
        parts: dict[str, list[Reading]],
        starts: dict[str, int],
        pieces: dict[str, list[tuple[torch.Tensor, torch.Tensor]]],
        *,
        samples: bool,
    ) -> None:
        """Start the comparison of each output's rows in a block of the reference; `starts` holds the first row.

        An output that is a single row has its expected parts added to `pieces`: a part has another size than the row.
        """
        exact, honest = self._reference.values(block.exact), self._reference.values(block.honest)
        sides_by_path = {
            path: rows_from(Sides(tensor, exact[path], honest[path]), starts[path]) for path, _, tensor, _ in snapshots
        }
        for path, _, tensor, _ in snapshots:
            if parts[path] and not tensor.dim():
                continue  # A scalar is the same for all blocks (`Reference.settle`).
            sides = sides_by_path[path]
            if samples and not number:
                self.evidence.see(path, sides, self.limits(path, sides.honest))
            if tensor.shape != sides.honest.shape and self._is_small_row(path, tensor):
                # Copies: a part may be a view of a large tensor, or of memory that the next block overwrites.
                pieces.setdefault(path, []).append((sides.exact.clone(), sides.honest.clone()))
            else:
                parts[path].append(self._compare(path, sides_by_path))
            if samples:
                self.precision.add(number, path, sides, in_float64=block.in_float64, start=starts[path])
            starts[path] += sides.honest.shape[0] if sides.honest.dim() else 0

    def _is_small_row(self, path: str, tensor: torch.Tensor) -> bool:
        """Return whether an output is one row of the tolerance, along dimension 0, and has few elements."""
        declared = self._reference.problem.formats.outputs.get(path)
        is_row = tensor.dim() > 0 and tensor.numel() == tensor.shape[0] <= _MOST_OF_ROW
        return is_row and (declared is None or declared.scales is None)

    def _compare(self, path: str, sides_by_path: dict[str, Sides]) -> Reading:
        """Start the comparison of an output, or of the rows in one block; `sides_by_path` has all outputs."""
        actual, exact, honest = sides_by_path[path]
        limits = with_scales(self.limits(path, honest), self._reference.problem, path, sides_by_path)
        sides = Sides(actual, exact if limits else exact.to(honest.dtype), honest)
        return self._comparison(path, sides, limits)

    def _limits_of_call(self) -> CallLimits:
        return CallLimits(self._reference, self._distribution_mix, self.rule, self._profile, self._fills)

    def limits(self, path: str, honest: torch.Tensor) -> Limit:
        """Return the limit of an output of the current call; None for integers and booleans."""
        return self._limits.of(path, honest)

    def _not_of_this_call(
        self, snapshots: list[OutputViews], pairs: list[AnswerPair], exempt: frozenset[str]
    ) -> Finding | None:
        """Find an output not made in this call: located in other memory, or present before the inputs.

        If the reference itself returns a view of a weight or of an input, submissions may too.
        """
        reuse, self._last_storages = reused(snapshots, self._last_storages, exempt)
        lent = lent_weights(views_laid_out(pairs), self._weights_lie, exempt)
        stood = None if self.precomputed_output is None else self.precomputed_output.stood_before(pairs, exempt)
        return reuse or lent or stood

    def _changed_input(self, placed: LaidOut) -> Finding | None:
        """Find an input overwritten by the submission."""
        return changed_input(placed, self._reference.written)


def _first_wrong(checks: list[TensorCheck]) -> Finding | None:
    return next((problem for check in checks if (problem := wrong_values(check)) is not None), None)


def _has_shape_of(value: Value, tensor: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (tensor.shape, tensor.dtype)
