"""Products whose order decides: partial products overflow or underflow, and the product itself does not.

No kernel chooses its order by the factors. The least favourable order is therefore a bound and no measurement: a
distribution beyond the bound is not used, and the bound never widens a tolerance.
"""

import torch

from evaluator.judge.compare.tensor_comparison import Comparison
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.numerics.products import OPERATIONS, PartialProduct
from evaluator.judge.numerics.summation_orders import decides, limits_of, other_orders, uses
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments


def multiplies(reference: Reference, inputs: Arguments) -> bool:
    """Return whether a call of the reference multiplies many factors."""
    return uses(reference, inputs, OPERATIONS)


def beyond_range(
    reference: Reference, inputs: Arguments, gradients: list[torch.Tensor] | None, compare: Comparison
) -> str | None:
    """Return why the order of products decides about an output of a call; None if no order moves any output."""
    expected = reference.expected(inputs, 0, gradients)
    limits = limits_of(reference.problem, reference.values(expected.honest))
    orders = list(PartialProduct)
    errors = other_orders(reference, inputs, gradients, expected, limits, orders, compare=compare)
    for path, largest in errors.items():
        limit = limits[path]
        if decides(largest, limit) if isinstance(limit, Bounds) else largest > 0:
            return f"the order of factors decides: partial products of {path} overflow or underflow"
    return None
