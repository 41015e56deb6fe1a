"""Rounding of exponentials by base 2: exp(x) as 2**(x log2 e), the arithmetic of `__expf` and of Triton's `exp`.

fp32 rounds the product x log2 e by at most 2**-24 of the product, and log2 e by 1.34e-8 of log2 e. An error of the
exponent is a relative error of the result:

    |error| <= |x| (2**-24 + 1.34e-8) exp(x) = 0.61 |x| units of 2**-23 exp(x)

The CUDA C++ Programming Guide documents 2 + floor(|1.173 x|) ulp of `__expf`: the same bound, for an ulp of 2**-24 of
the value. The largest finite result has the argument 88.7 and a bound of 54 units. The 2 ulp of the power of two are
among the units for other steps (`compare/tolerance.py`).

The bound grows with the argument, and no constant for all functions fits: outliers of 64 need 39 units, values of at
most 1 need none.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.numerics.arithmetic_modes import generators, with_handlers
from evaluator.judge.numerics.summation_orders import changed_by
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.protocol.model_call import Result

aten = torch.ops.aten
_OF_ARGUMENT = 2.0**-24 + 1.34e-8
"""Largest error of the exponent x log2 e, relative to the exponent."""
_LEAST, _MOST = -103.3, 88.8
"""Beyond these arguments, a result in fp32 is 0 or infinite."""
_MOST_UNIT = -_LEAST * _OF_ARGUMENT
"""Largest relative error of an exponential. A larger deviation of an output comes from another step, as from a
logarithm near 0."""
_GROWTH = 1.01


@contextlib.contextmanager
def by_base_2() -> Iterator[None]:
    """Context with each exponential in fp32 off by the largest rounding of x log2 e, up or down at random."""
    generator = generators(0)

    def error_of(x: torch.Tensor) -> torch.Tensor:
        up = torch.empty(x.shape, dtype=x.dtype, device=x.device).bernoulli_(generator=generator(x.device))
        return x.clamp(_LEAST, _MOST) * (2 * up - 1) * _OF_ARGUMENT

    def off(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
        """Return a handler that adds `change` of the argument and of the result, times the exponent's error."""

        def function(func: Any, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = func(x)
            if x.dtype != torch.float32:
                return found
            return torch.where(torch.isfinite(found), found + change(x, found) * error_of(x), found)

        return function

    handlers: Mapping[Any, Callable[..., torch.Tensor]] = {
        aten.exp.default: off(lambda _, found: found),
        aten.expm1.default: off(lambda _, found: found + 1),
        aten.sinh.default: off(lambda x, _: x.cosh()),
        aten.cosh.default: off(lambda x, _: x.sinh()),
        aten.sigmoid.default: off(lambda _, found: found * (1 - found)),
        aten.silu.default: off(lambda x, found: found * (-x).sigmoid()),
    }
    with with_handlers(handlers):
        yield


def units_of_exponentials(
    reference: Reference,
    inputs: Arguments,
    gradients: list[torch.Tensor] | None,
    plain: Result,
    random_seed: int,
) -> dict[str, float]:
    """Return by path how far exponentials by base 2 move an output's elements, relative to the element.

    `plain` is the plain reference's result. The floor's part of the row's size is subtracted. Outputs in other dtypes
    than fp32 are left out.
    """
    changed = changed_by(by_base_2(), reference, inputs, gradients, plain, random_seed)
    return {
        path: _unit_of(path, sides, limit)
        for path, sides, limit in changed
        if sides.actual.dtype == sides.honest.dtype == torch.float32
    }


def _unit_of(path: str, sides: Sides, limit: Bounds) -> float:
    """Return the least error relative to the element, beside the floor's part of the row's size; 0 if small."""
    small = unit = limit.honest_unit
    while unit < _MOST_UNIT:
        given = limit._replace(multiple=0.0, floor=limit.floor / limit.multiple, unit=unit, far=math.inf, rare=0.0)
        ratio = compare(path, sides, given).error_ratio
        if ratio is None:  # NaN and infinity measure no rounding.
            return 0.0
        if ratio <= 1:
            return unit if unit > small else 0.0
        unit *= max(ratio, _GROWTH)
    return _MOST_UNIT
