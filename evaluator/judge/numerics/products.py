"""Products in other orders, and partial products beyond the range of the format.

A kernel computes a product from partial products: one for each thread, then one of the threads' products. The product
may be finite, and a partial product may not be. 256 factors with magnitudes of 2**-8 to 2**8 have products of 1e24, and
a thread's 64 factors overflow. On such inputs the order decides, and no order is specified.

`torch.prod` has commuting factors: every subset is a partial product of some order. With the largest magnitudes first,
the partial product is that of all factors above 1; with the smallest first, that of all factors below 1. In
`torch.cumprod` a scan multiplies segments: products of consecutive factors.
"""

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import torch

from evaluator.judge.numerics.single_accumulator import MOST_ELEMENTS, running

aten = torch.ops.aten

_LAST = -1
_BARRIER = 1e4
"""Size of the logarithm in place of that of zero, for segments without zeros. Factors before a zero whose logarithms
have a larger sum have overflowed already."""


_RESERVE = 2.0**40
"""Factor below the largest number from which a partial product counts as infinite. The decision sees one draw, and
other calls draw other factors: without a reserve, a draw of `cumprod` over 500 columns kept mixed magnitudes."""


class PartialProduct(StrEnum):
    """Products with the least favourable partial products that some order computes."""

    OVERFLOW = "overflow"  # infinite, if a partial product is or nearly is
    UNDERFLOW = "underflow"  # zero, if a partial product is subnormal


def _is_multiplied(factors: torch.Tensor) -> bool:
    return factors.dtype == torch.float32 and 0 < factors.numel() <= MOST_ELEMENTS


def _product(
    of_factors: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[..., torch.Tensor]:
    """Return a handler of `prod`: `of_factors` takes the factors along the last dimension, and the plain products."""

    def handler(  # the order of aten's parameters
        func: Any,
        x: torch.Tensor,
        dim: int | None = None,
        keepdim: bool = False,  # noqa: FBT001, FBT002
        *,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        dim_arguments = () if dim is None else (dim, keepdim)
        plain: torch.Tensor = func(x, *dim_arguments, dtype=dtype)
        if not plain.is_floating_point() or not x.dim():
            return plain
        factors = x.to(plain.dtype)
        factors = factors.flatten() if dim is None else factors.movedim(dim, _LAST)
        return of_factors(factors, plain.reshape(factors.shape[:-1])).reshape(plain.shape)

    return handler


def _running_product(
    of_factors: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[..., torch.Tensor]:
    """Return a handler of `cumprod`; see `_product`."""

    def handler(func: Any, x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
        plain: torch.Tensor = func(x, dim, dtype=dtype)
        if not plain.is_floating_point() or not x.dim():
            return plain
        factors = x.to(plain.dtype).movedim(dim, _LAST)
        return of_factors(factors, plain.movedim(dim, _LAST)).movedim(_LAST, dim)

    return handler


def _last_multiplied(factors: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    return running(factors, np.multiply)[..., _LAST] if _is_multiplied(factors) else plain


def _all_multiplied(factors: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    return running(factors, np.multiply) if _is_multiplied(factors) else plain


def _reversed(func: Any, x: torch.Tensor, dim: int | None = None, *rest: Any, **options: Any) -> torch.Tensor:
    along = list(range(x.dim())) if dim is None else [dim] if x.dim() else []
    dim_arguments = () if dim is None else (dim,)
    return func(x.flip(along), *dim_arguments, *rest, **options)  # type: ignore[no-any-return]


def _range(dtype: torch.dtype) -> tuple[float, float]:
    """Return the logarithms of the least and of the largest partial product; half precision multiplies in fp32."""
    info = torch.finfo(dtype if dtype == torch.float64 else torch.float32)
    return math.log(info.smallest_normal), math.log(info.max / _RESERVE)


def _logarithms(factors: torch.Tensor, of_zero: float) -> torch.Tensor:
    return torch.where(factors == 0, of_zero, factors.double().abs().log())


def _any_overflows(factors: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    above_one = _logarithms(factors, 0.0).clamp(min=0.0).sum(_LAST)
    return _replace_finite(plain, above_one > _range(factors.dtype)[1], math.inf)


def _any_underflows(factors: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    below_one = _logarithms(factors, 0.0).clamp(max=0.0).sum(_LAST)
    return _replace_finite(plain, below_one < _range(factors.dtype)[0], 0.0)


def _segment_overflows(factors: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    sums = _logarithms(factors, -_BARRIER).cumsum(_LAST)
    largest = (sums - _exclusive_sums(sums).cummin(_LAST).values).cummax(_LAST).values
    return _replace_finite(plain, largest > _range(factors.dtype)[1], math.inf)


def _segment_underflows(factors: torch.Tensor, plain: torch.Tensor) -> torch.Tensor:
    sums = _logarithms(factors, 0.0).cumsum(_LAST)
    smallest = (sums - _exclusive_sums(sums).cummax(_LAST).values).cummin(_LAST).values
    return _replace_finite(plain, smallest < _range(factors.dtype)[0], 0.0)


def _exclusive_sums(sums: torch.Tensor) -> torch.Tensor:
    """Return the sum before each element."""
    return torch.cat([torch.zeros_like(sums[..., :1]), sums[..., :-1]], _LAST)


def _replace_finite(plain: torch.Tensor, where: torch.Tensor, value: float) -> torch.Tensor:
    """Return `plain` with its finite elements replaced by `value` at the given places."""
    return torch.where(where & torch.isfinite(plain), value, plain)


_Change = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _handlers(product: _Change, running_product: _Change) -> dict[Any, Callable[..., Any]]:
    return {
        aten.prod.default: _product(product),
        aten.prod.dim_int: _product(product),
        aten.cumprod.default: _running_product(running_product),
    }


REVERSED: Mapping[Any, Callable[..., Any]] = {aten.prod.default: _reversed, aten.prod.dim_int: _reversed}
"""Products from the last factor to the first. The products of `cumprod` begin with the first factor."""
IN_ONE_ACCUMULATOR: Mapping[Any, Callable[..., Any]] = _handlers(_last_multiplied, _all_multiplied)
PARTIAL: Mapping[PartialProduct, Mapping[Any, Callable[..., Any]]] = {
    PartialProduct.OVERFLOW: _handlers(_any_overflows, _segment_overflows),
    PartialProduct.UNDERFLOW: _handlers(_any_underflows, _segment_underflows),
}
OPERATIONS = frozenset(IN_ONE_ACCUMULATOR)
"""Operations that multiply many factors."""
