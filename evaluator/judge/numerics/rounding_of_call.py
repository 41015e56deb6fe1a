"""Rounding of a call: errors of other summation orders, with the inputs and weights of the call.

Nothing about rounding is known before an answer deviates. A call with wrong values is compared once more, with the
errors of honest arithmetic on its own inputs and weights: a group norm of nearly equal values divides by their small
spread, and honest errors of single calls of KernelBench's level 2, 21 and 85, were up to 30 times the usual ones.

Some outputs are results of rounding: another rounding of each operation changes them altogether. The mean of a group
norm with weights of 1 and biases of 0 is 0, apart from rounding. Float64 rounds otherwise, and disagrees: the expected
values are then the plain reference's own, and say nothing about the rounding.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.compare.tensor_comparison import Comparison, Limit, begin
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.numerics.arithmetic_modes import SummationOrder, in_order
from evaluator.judge.numerics.fp8_sums import rounding_of_fp8_sums
from evaluator.judge.numerics.summation_orders import limits_of, other_orders
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.model_call import Result
from evaluator.records import Precision, TensorCheck

_NEAR = 64.0
"""Largest error over tolerance with a search for rounding. Honest errors were at most 10 times the tolerance."""
_FEW_ONE_IN = 16
"""Least number of elements for each element at a step that rounding decides."""
_MOST_BLOCKS = 4
ORDERS = {
    Precision.FP32: (SummationOrder.SEQUENTIAL, SummationOrder.ROUNDED, SummationOrder.NAIVE),
    Precision.TF32: (SummationOrder.SEQUENTIAL, SummationOrder.ROUNDED, SummationOrder.NAIVE),
    Precision.BF16: (SummationOrder.SEQUENTIAL,),
    Precision.FP16: (SummationOrder.SEQUENTIAL,),
}
"""Arithmetic of honest kernels. The naive formulas too: log(1 + exp(x)) is off by 5e-4 where x is about -9, and draws
differ in the sign of x. In half precision they are computed in fp32, and lie below the floor; there, a moved result is
rounded twice."""
NOISE = 1 / 16
"""Difference of two roundings, relative to an output, from which the output is a result of rounding."""
_LEAST_DRAWS = 2
_ERRORS = 8
"""Minimum number of errors for an output's rounding: elements times draws. The single error of a single number may be
near 0 by chance. Of two normal errors, the second is beyond 4 times the first in 15.6 % of the pairs. A normal error is
beyond 4 times the largest of 8 in 0.013 % (computed by integration)."""


def may_be_rounding(checks: Iterable[TensorCheck]) -> bool:
    """Return whether rounding may explain all errors of an answer: small errors, or few."""
    return all(is_near(check) or are_few(check) for check in checks)


def is_near(check: TensorCheck) -> bool:
    """Return whether all errors of an output are near the tolerance."""
    return check.nonfinite == 0 and (check.error_ratio or 0.0) <= _NEAR


def are_few(check: TensorCheck) -> bool:
    """Return whether only few elements are wrong, as at the steps of a quantiser or of a comparison."""
    return check.nonfinite == 0 and check.mismatches * _FEW_ONE_IN <= math.prod(check.shape)


class _BlockRounding(NamedTuple):
    """Rounding of an output's part in a block, relative to `size`, and the number of elements."""

    rounding: float
    size: float
    elements: int


def rounding_of_call(plan: CallPlan, compare: Comparison = begin) -> dict[str, float]:
    """Return the errors of other orders in a call, by path; infinite for integers and codes that other orders change.

    If the call has many blocks, the errors are those of its first blocks. The reference must have the weights of the
    call. Empty if memory is too small.
    """
    parts: dict[str, list[_BlockRounding]] = {}
    reference = plan.reference
    try:
        with out_of_memory():
            for block, expected in zip(plan.blocks[:_MOST_BLOCKS], plan.expected(), strict=False):
                exact, values = reference.values(expected.exact), reference.values(expected.honest)
                limits = limits_of(reference.problem, values)
                errors = other_orders(
                    reference,
                    block,
                    plan.gradients,
                    expected,
                    limits,
                    ORDERS[reference.problem.precision],
                    random_seed=plan.random_seed,
                    draws=_draws(limits, values),
                    compare=compare,
                )
                sums = rounding_of_fp8_sums(reference, block, plan.gradients, expected.honest, plan.random_seed)
                for path, error in errors.items():
                    size = _size(exact[path]) if len(plan.blocks) > 1 and isinstance(limits[path], Bounds) else 1.0
                    part = _BlockRounding(max(error, sums.get(path, 0.0)), size, exact[path].numel())
                    parts.setdefault(path, []).append(part)
    except MemoryError:
        return {}
    return {path: _joined(block_parts) for path, block_parts in parts.items()}


def _draws(limits: Mapping[str, Limit], values: Mapping[str, Value]) -> int:
    """Return how many random roundings give each output enough errors: the first adds up, later draws draw sums."""
    bounded = (value for path, value in values.items() if isinstance(limits[path], Bounds))
    counts = [value.numel() for value in bounded if isinstance(value, torch.Tensor)]
    return max(-(-_ERRORS // max(min(counts, default=_ERRORS), 1)), _LEAST_DRAWS)


def _size(part: torch.Tensor) -> float:
    """Return the root mean square of a part of a single row that lies across blocks; 1 for rows of their own."""
    if not part.dim() or part.numel() != part.shape[0]:
        return 1.0
    finite = part[torch.isfinite(part)].abs().double()
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def _joined(parts: list[_BlockRounding]) -> float:
    """Return the largest rounding, relative to the size of all parts: the row is compared as a whole."""
    squares, count = sum(part.size * part.size * part.elements for part in parts), sum(part.elements for part in parts)
    whole = math.sqrt(squares / count) if squares else 1.0
    return max(rounding * size / whole for rounding, size, _ in parts)


def results_of_rounding(
    reference: Reference, inputs: Arguments, gradients: list[torch.Tensor] | None, plain: Result, random_seed: int
) -> set[str]:
    """Return the paths of outputs that are results of rounding; `plain` is the plain reference's result."""
    try:
        moved = reference.values(reference.altered(inputs, random_seed, gradients, in_order(SummationOrder.ROUNDED)))
    except ProblemError:  # An operation without support for the mode is no fault of the problem.
        return set()
    return {path for path, value in reference.values(plain).items() if is_far(moved.get(path), value)}


def results_in_call(plan: CallPlan) -> set[str]:
    """Return the paths of outputs that are results of rounding in the first block of a call."""
    plain = next(plan.honest()).result
    return results_of_rounding(plan.reference, plan.blocks[0], plan.gradients, plain, plan.random_seed)


def is_far(one: object, other: object) -> bool:
    """Return whether floating-point tensors of the same shape differ by `NOISE` of their size, as a whole."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor) or one.shape != other.shape:
        return False
    if not other.is_floating_point():
        return False
    size = float(torch.linalg.vector_norm(other.double()))
    return float(torch.linalg.vector_norm(one.double() - other.double())) > NOISE * size
