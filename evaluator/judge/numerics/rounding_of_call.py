"""Rounding of one call: errors of other summation orders, with the inputs and weights of the call.

The rounding of a problem is measured beforehand, with the constructed weights (`setup/distribution_mix.py`). Weights
change between calls, and so does the conditioning: a group norm of nearly equal values divides by their small spread.
Measured on KernelBench's level 2, 21 and 85: honest errors of single calls were up to 30 times those measured
beforehand. A call with wrong values is therefore compared once more, with the errors of honest arithmetic on its own
inputs and weights.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.judge.compare.tensor_comparison import Limit
from evaluator.judge.compare.tolerance import Bounds, Rounding
from evaluator.judge.numerics.arithmetic_modes import Order
from evaluator.judge.numerics.exponentials import units_of_exponentials
from evaluator.judge.numerics.fp8_sums import rounding_of_fp8_sums
from evaluator.judge.numerics.single_accumulator import LongSum
from evaluator.judge.numerics.summation_orders import larger, limits_of, other_orders
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.model_call import Result
from evaluator.records import TensorCheck

_NEAR = 64.0
"""Error over tolerance beyond which no rounding is looked for. Honest errors were at most 10 times the tolerance."""
_MOST_BLOCKS = 4
_ORDERS: list[Order | LongSum] = [Order.SEQUENTIAL, LongSum.ATOMIC, Order.ROUNDED, Order.NAIVE]
"""The naive formulas too: log(1 + exp(x)) is off by 5e-4 where x is about -9, and draws differ in the sign of x."""
_NONE = Rounding()
_ERRORS = 8
"""Minimum number of errors for an output's rounding: elements times draws. The single error of a single number may be
near 0 by chance. Of two normal errors, the second is beyond 4 times the first in 15.6 % of the pairs. A normal error is
beyond 4 times the largest of 8 in 0.013 % (computed by integration)."""


def may_be_rounding(checks: Iterable[TensorCheck]) -> bool:
    """Return whether all errors of an answer are so small that rounding may explain them."""
    return all(check.nonfinite == 0 and (check.error_ratio or 0.0) <= _NEAR for check in checks)


class _Part(NamedTuple):
    """Rounding of an output's part in a block, relative to `size`, and the number of its elements."""

    rounding: Rounding
    size: float
    elements: int


def rounding_of_call(plan: CallPlan) -> dict[str, Rounding]:
    """Return the errors of other orders and of exponentials in a call, by path.

    If the call has many blocks, the errors of other orders are those of its first blocks. The reference must wear the
    weights of the call. Empty if memory is too small.
    """
    parts: dict[str, list[_Part]] = {}
    reference = plan.reference
    try:
        with out_of_memory():
            for block, expected in zip(plan.blocks[:_MOST_BLOCKS], plan.expected(), strict=False):
                exact, values = reference.values(expected.exact), reference.values(expected.honest)
                limits = limits_of(reference.problem, values)
                own = other_orders(
                    reference,
                    block,
                    plan.gradients,
                    expected,
                    limits,
                    _ORDERS,
                    closely=True,
                    random_seed=plan.random_seed,
                    draws=_draws(limits, values),
                )
                elements = _of_elements(plan, block, expected.honest)
                for path, each in own.items():
                    if isinstance(limits[path], Bounds):
                        size = _size(exact[path]) if len(plan.blocks) > 1 else 1.0
                        rounding = larger(each, elements.get(path, _NONE))
                        parts.setdefault(path, []).append(_Part(rounding, size, exact[path].numel()))
            for block in plan.blocks[_MOST_BLOCKS:]:  # A single outlier may have the largest error.
                plain = reference.honest(block, plan.random_seed, None).result
                for path, rounding in _of_elements(plan, block, plain).items():
                    values = reference.values(plain)
                    size = _size(values[path])
                    parts.setdefault(path, []).append(_Part(rounding, size, values[path].numel()))
    except MemoryError:
        return {}
    return {path: _joined(known) for path, known in parts.items() if any(_is_finite(each.rounding) for each in known)}


def _of_elements(plan: CallPlan, block: Arguments, plain: Result) -> dict[str, Rounding]:
    """Return the largest errors that single elements may have: of exponentials, and of sums of fp8 products.

    Empty if memory is too small: a lack of memory here takes nothing from the errors of other orders.
    """
    try:
        with out_of_memory():
            units = units_of_exponentials(plan.reference, block, plan.gradients, plain, plan.random_seed)
            sums = rounding_of_fp8_sums(plan.reference, block, plan.gradients, plain, plan.random_seed)
    except MemoryError:
        return {}
    return {path: Rounding(sums.get(path, 0.0), 0.0, units.get(path, 0.0)) for path in units.keys() | sums.keys()}


def _draws(limits: Mapping[str, Limit], values: Mapping[str, Value]) -> int:
    """Return how many draws of random roundings give each output enough errors."""
    bounded = (value for path, value in values.items() if isinstance(limits[path], Bounds))
    counts = [value.numel() for value in bounded if isinstance(value, torch.Tensor)]
    return -(-_ERRORS // max(min(counts, default=_ERRORS), 1))


def _size(part: torch.Tensor) -> float:
    """Return the root mean square of a part of a single row that lies across blocks; 1 for rows of their own."""
    if not part.dim() or part.numel() != part.shape[0]:
        return 1.0
    finite = part[torch.isfinite(part)].abs().double()
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def _joined(parts: list[_Part]) -> Rounding:
    """Return the largest finite rounding, relative to the size of all parts: the row is compared as a whole."""
    squares, count = sum(each.size * each.size * each.elements for each in parts), sum(each.elements for each in parts)
    whole = math.sqrt(squares / count) if squares else 1.0
    found = Rounding()
    for rounding, size, _ in parts:
        if _is_finite(rounding):
            part = size / whole
            found = larger(found, rounding._replace(usual=rounding.usual * part, rare=rounding.rare * part))
    return found


def _is_finite(rounding: Rounding) -> bool:
    return math.isfinite(rounding.usual) and math.isfinite(rounding.rare)
