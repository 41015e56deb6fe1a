"""Output errors from other summation orders and other rounding: the errors that an honest kernel may have."""

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch

from evaluator.errors import ProblemError
from evaluator.judge.compare.limits import limit_of, with_scales
from evaluator.judge.compare.steps import Steps
from evaluator.judge.compare.tensor_comparison import Comparison, Limit, Sides, begin
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.numerics.arithmetic_modes import (
    Format,
    SummationOrder,
    in_order,
    with_handlers,
    with_operands,
    with_results,
)
from evaluator.judge.numerics.products import PartialProduct
from evaluator.judge.reference.reference import Expected, Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.model_call import Result
from evaluator.records import Precision, Problem

_CLOSELY = 1.1
"""Factor of accuracy of a measured error."""
_WIDEST_OF_ORDERS = 2.0
"""Limit of a tolerance for other orders, as a multiple of the widest tolerance: 1.6e-3 of a row's root mean square in
fp32. TF32 needs 2e-3. Where one element has 100 times the row's size, its own rounding in a single accumulator needs
1e-3."""
_DRAWN = frozenset({SummationOrder.SEQUENTIAL, SummationOrder.ROUNDED})
"""Orders whose roundings are random: another draw has others."""

_OPERANDS: dict[Precision, list[tuple[Format, int]]] = {
    Precision.FP32: [],
    Precision.TF32: [(Format.TF32, 0), (Format.TF32_CUT, 0)],
    Precision.BF16: [(Format.BF16, draw) for draw in range(1, 17)],
    Precision.FP16: [(Format.FP16, draw) for draw in range(1, 17)],
}
"""Formats of operands that tensor cores take, by precision, and their draws. In half precision, FlashAttention and
FlashInfer round the weights of attention for the second product; operands given in half precision are exact. A row with
two large weights has a single rounding: of 6000 calls with constant rows, 2 exceeded twice the largest of 16 draws,
and 11 twice the largest of 8."""


def uses(reference: Reference, inputs: Arguments, operations: Collection[Any]) -> bool:
    """Return whether a call of the reference runs any of the `operations`."""
    runs_operation = False

    def noted(func: Callable[..., object], *args: object, **options: object) -> object:
        nonlocal runs_operation
        runs_operation = True
        return func(*args, **options)

    with with_handlers(dict.fromkeys(operations, noted)):
        reference.forward(inputs, 0)
    return runs_operation


def rounds(reference: Reference, inputs: Arguments) -> bool:
    """Return whether a call of the reference rounds a number: else rounding decides no integer of the output."""
    rounds_number = False

    def noted(result: torch.Tensor) -> torch.Tensor:
        nonlocal rounds_number
        rounds_number = True
        return result

    with with_results(noted):
        reference.forward(inputs, 0)
    return rounds_number


def largest_error(limit: Bounds) -> float:
    """Return the error of other orders that widens the tolerance to `_WIDEST_OF_ORDERS`; infinite for a fixed one."""
    return _WIDEST_OF_ORDERS * limit.widest * limit.floor / limit.multiple if limit.multiple else math.inf


def decides(error: float, limit: Bounds) -> bool:
    """Return whether an error of other orders would widen the tolerance beyond `_WIDEST_OF_ORDERS`."""
    return error > largest_error(limit)


def other_orders(
    reference: Reference,
    inputs: Arguments,
    gradients: list[torch.Tensor] | None,
    expected: Expected,
    limits: dict[str, Limit],
    orders: Sequence[SummationOrder | PartialProduct],
    *,
    random_seed: int = 0,
    draws: int = 1,
    compare: Comparison = begin,
) -> dict[str, float]:
    """Return the largest distance of other orders from the exact outputs, by path, in the unit of `Bounds.floor`.

    The rounding of the element is subtracted, as in a tolerance. Operands rounded for tensor cores (`_OPERANDS`) are
    additional orders. Integers and codes have the distance 0 or infinity: codes are equal, or a few are one step apart.
    Random roundings have several `draws`.
    """
    modes: list[contextlib.AbstractContextManager[None]] = [in_order(order) for order in orders]
    modes += [in_order(order, draw) for draw in range(1, draws) for order in orders if order in _DRAWN]
    modes += [with_operands(to, draw) for to, draw in _OPERANDS[reference.problem.precision]]
    exact, honest = reference.values(expected.exact), reference.values(expected.honest)
    worst = dict.fromkeys((path for path, value in honest.items() if isinstance(value, torch.Tensor)), 0.0)
    for mode in modes:
        try:
            values = reference.values(reference.altered(inputs, random_seed, gradients, mode))
        except ProblemError:  # An operation without support for the mode is no fault of the problem.
            continue
        if any(not isinstance(values.get(path), torch.Tensor) for path in worst):
            continue
        sides_by_path = {path: Sides(values[path], exact[path], honest[path]) for path in worst}
        for path, sides in sides_by_path.items():
            if sides.actual.shape != sides.honest.shape:
                continue
            limit = with_scales(limits[path], reference.problem, path, sides_by_path)
            worst[path] = max(worst[path], error_of(path, sides, limit, compare))
    return worst


def changed_by(
    mode: contextlib.AbstractContextManager[None],
    reference: Reference,
    inputs: Arguments,
    gradients: list[torch.Tensor] | None,
    plain: Result,
    random_seed: int,
) -> Iterator[tuple[str, Sides, Bounds]]:
    """Yield the tensors with a tolerance of Bounds: path, values in `mode` beside those of `plain`, and the bounds.

    `plain` is the plain reference's result: float64 would add the errors of all steps that `mode` leaves alone. Yields
    nothing if an operation does not support the mode.
    """
    honest = reference.values(plain)
    try:
        altered = reference.values(reference.altered(inputs, random_seed, gradients, mode))
    except ProblemError:  # No fault of the problem.
        return
    for path, value in honest.items():
        changed, limit = altered.get(path), limit_of(reference.problem, path, value)
        if (
            not isinstance(limit, Bounds)
            or not isinstance(value, torch.Tensor)
            or not isinstance(changed, torch.Tensor)
        ):
            continue
        if value.shape == changed.shape:
            yield path, Sides(changed, value, value), limit


def error_of(path: str, sides: Sides, limit: Limit, compare: Comparison = begin) -> float:
    """Return the largest error beyond the rounding of the element, in the unit of `Bounds.floor`."""
    if limit is None:
        return 0.0 if begin(path, sides._replace(exact=sides.honest), None)().ok else math.inf
    if isinstance(limit, Steps):
        return 0.0 if compare(path, sides, limit)().ok else math.inf
    part = limit.floor / limit.multiple
    # The ratio is to the sum of `part` and the rounding of the element: where the rounding is the larger term, a
    # tolerance of ratio x part is still too small.
    fixed = limit._replace(multiple=0.0, far=math.inf)
    while (ratio := compare(path, sides, fixed._replace(floor=part))().error_ratio) is not None and ratio > 1:
        part *= max(ratio, _CLOSELY)
    return math.inf if ratio is None else ratio * part


def refused_output(
    reference: Reference,
    answer: Mapping[str, Any],
    expected: Expected,
    limits: Mapping[str, Limit],
    compare: Comparison,
) -> str | None:
    """Return the path of an output of `answer` with another shape, or that a comparison refuses; None without one."""
    exact, honest = map(reference.values, (expected.exact, expected.honest))
    tensors = {path: value for path, value in honest.items() if isinstance(value, torch.Tensor)}
    for path, value in tensors.items():
        if not isinstance(answer.get(path), torch.Tensor) or answer[path].shape != value.shape:
            return path
    sides_by_path = {path: Sides(answer[path].to(value.dtype), exact[path], value) for path, value in tensors.items()}
    for path, sides in sides_by_path.items():
        limit = with_scales(limits[path], reference.problem, path, sides_by_path)
        compared = sides if limit is not None else sides._replace(exact=sides.exact.to(sides.honest.dtype))
        if not compare(path, compared, limit)().ok:
            return path
    return None


def limits_of(problem: Problem, values: Mapping[str, Value]) -> dict[str, Limit]:
    """Return the limit of each output, by path; None for integers and booleans, which must be equal."""
    return {path: limit_of(problem, path, value) for path, value in values.items()}
