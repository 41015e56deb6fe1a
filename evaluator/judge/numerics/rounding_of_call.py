"""Rounding of a call: errors of other summation orders, with the inputs and weights of the call.

Nothing about rounding is known before an answer deviates. A call with wrong values is compared once more, with the
errors of honest arithmetic on its own inputs and weights: a group norm of nearly equal values divides by their small
spread, and honest errors of single calls of KernelBench's level 2, 21 and 85, were up to 30 times the usual ones.

Some outputs are results of rounding: another rounding of each operation changes them altogether. The mean of a group
norm with weights of 1 and biases of 0 is 0, apart from rounding. Float64 rounds otherwise, and disagrees: the expected
values are then the plain reference's own, and say nothing about the rounding.

Sums of fp8 products (`rounding_of_fp8_sums`): Hopper's tensor cores align 32 products and the accumulator to the
largest, and cut off bits below 2**-13 of its leading bit (DeepSeek-V3's technical report, section 3.5.2: 14 bits;
SageAttention2 found 13 bits of mantissa in the accumulator). Careful kernels, as DeepGEMM's, move sums to fp32 after a
tile of 128 products. Let Q be the sum of the squared products of an element. By the model of
`tests/unit/judge/compare/test_sums_of_fp8.py`, tiles of 128 are off by a standard deviation of

    1.3e-4 sqrt(Q)

The error belongs to the element, not to its row. In a column with a scale far above all others, an element that cancels
makes the whole row small, and its own error stays as large. Four times the deviation here, 2e-4 sqrt(Q), are six
standard deviations. Sums of all 4096 products in a row are off by 1.3e-3 sqrt(Q).
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.compare.tensor_comparison import Comparison, Limit, begin
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.numerics.arithmetic_modes import (
    SummationOrder,
    generators,
    in_order,
    product_handlers,
    with_handlers,
)
from evaluator.judge.numerics.summation_orders import changed_by, error_of, limits_of, other_orders
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.model_call import Result
from evaluator.protocol.pytree import tensors_of
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


_DEVIATION = 2e-4
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@contextlib.contextmanager
def by_tensor_cores() -> Iterator[None]:
    """Context with products of fp8 values in fp32 off by `_DEVIATION`, up or down at random."""
    generator = generators(0)

    def product(func: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = func(a, b)
        if a.dtype != torch.float32 or not (_is_fp8(a) and _is_fp8(b)):
            return total
        up = torch.empty_like(total).bernoulli_(generator=generator(a.device))
        size: torch.Tensor = func(a * a, b * b).sqrt()
        return total + (2 * up - 1) * _DEVIATION * size

    with with_handlers(product_handlers(product)):
        yield


def _is_fp8(x: torch.Tensor) -> bool:
    """Return whether all elements are values of a format of 8 bits."""
    return any(torch.equal(x.to(form).to(x.dtype), x) for form in _FP8)


def rounding_of_fp8_sums(
    reference: Reference, inputs: Arguments, gradients: list[torch.Tensor] | None, plain: Result, random_seed: int
) -> dict[str, float]:
    """Return by path how far such sums move an output, relative to its row; empty without tensors in fp8.

    `plain` is the plain reference's result.
    """
    tensors = [*tensors_of(list(inputs)), *reference.model.parameters(), *reference.model.buffers()]
    if not any(tensor.dtype in _FP8 for tensor in tensors):
        return {}
    changed = changed_by(by_tensor_cores(), reference, inputs, gradients, plain, random_seed)
    return {path: error_of(path, sides, limit) for path, sides, limit in changed}
