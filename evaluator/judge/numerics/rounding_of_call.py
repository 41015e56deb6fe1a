"""Rounding of one call: errors of other summation orders, with the inputs and weights of the call.

The rounding of a problem is measured beforehand, with the constructed weights (`setup/distribution_mix.py`). Weights
change between calls, and so does the conditioning: a group norm of nearly equal values divides by their small spread.
Measured on KernelBench's level 2, 21 and 85: honest errors of single calls were up to 30 times those measured
beforehand. A call with wrong values is therefore compared once more, with the errors of honest arithmetic on its own
inputs and weights.
"""

import math
from collections.abc import Iterable

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.judge.compare.tolerance import Bounds, Rounding
from evaluator.judge.numerics.arithmetic_modes import Order
from evaluator.judge.numerics.summation_orders import larger, limits_of, other_orders
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.records import TensorCheck

_NEAR = 64.0
"""Error over tolerance beyond which no rounding is looked for. Honest errors were at most 10 times the tolerance."""
_MOST_BLOCKS = 4
_ORDERS = [Order.SEQUENTIAL, Order.ROUNDED, Order.NAIVE]
"""The naive formulas too: log(1 + exp(x)) is off by 5e-4 where x is about -9, and draws differ in the sign of x."""


def may_be_rounding(checks: Iterable[TensorCheck]) -> bool:
    """Return whether all errors of an answer are so small that rounding may explain them."""
    return all(check.nonfinite == 0 and (check.error_ratio or 0.0) <= _NEAR for check in checks)


def rounding_of_call(plan: CallPlan) -> dict[str, Rounding]:
    """Return the errors of other summation orders in a call, by path; of its first blocks, if it has many.

    The reference must wear the weights of the call. Empty if memory is too small.
    """
    found: dict[str, Rounding] = {}
    reference = plan.reference
    try:
        with out_of_memory():
            for block, expected in zip(plan.blocks[:_MOST_BLOCKS], plan.expected(), strict=False):
                values = reference.values(expected.honest)
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
                )
                for path, each in own.items():
                    if isinstance(limits[path], Bounds) and _is_finite(each):
                        found[path] = larger(each, found.get(path, each))
    except MemoryError:
        return {}
    return found


def _is_finite(rounding: Rounding) -> bool:
    return math.isfinite(rounding.usual) and math.isfinite(rounding.rare)
