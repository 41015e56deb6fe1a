"""Likely causes of wrong values, by the values: where they lie, how they differ, and how far. Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import torch

from evaluator.findings.comparing import (
    ACCURATE_FUNCTIONS,
    CONSTANT,
    DRIFT,
    EXTRA_CLAMP,
    HARDLY_BEYOND,
    NO_FAST_MATH,
    NOT_WRITTEN,
    TRANSPOSED,
)
from evaluator.records import TensorCheck

_SAME = 1e-3
"""Relative scatter of one factor or one offset, relative to its difference from 1 or 0."""
_LEAST = 8
"""Fewer wrong values show no pattern."""
_NEARLY_ALL = 0.99
_HALF = 0.5
_MANY, _SMALL_BLOCK = 16, 0.25
"""As many elements, wrong at random, lie in such a part of the output once in four billion times."""
_LARGE = 0.1
"""Values below this part of the root mean square do not define a factor: their rounding is too large."""
_DRIFT = 0.01
_ALIKE = (0.25, 4.0)
"""Range of relative errors, in their median, of a drift. Eight errors of random sign agree once in 128 times: a drift
takes `_MANY` values."""


class Cause(NamedTuple):
    """Cause of wrong values: a clause of the message, and the next step if the usual step does not fit."""

    clause: str
    next_step: str | None = None


def wrong_pattern(actual: torch.Tensor, exact: torch.Tensor, wrong: torch.Tensor) -> Cause | None:
    """Return what all wrong values have in common; None without a pattern.

    `wrong` marks the wrong elements of `actual`. All tensors have the same shape; `exact` is in float64.

    >>> exact = torch.arange(1.0, 17.0, dtype=torch.float64)
    >>> wrong_pattern(exact * 2, exact, torch.ones(16, dtype=torch.bool)).clause
    'all values are 2 times the expected values'
    """
    count = int(wrong.sum())
    if count < _LEAST or not bool(torch.isfinite(actual[wrong]).all() & torch.isfinite(exact[wrong]).all()):
        return None
    share = "all values" if count >= _NEARLY_ALL * wrong.numel() else "the wrong values"
    got, expected = actual[wrong].double(), exact[wrong]
    if not bool(got.any()):
        if count < wrong.numel() and _wrong_block(wrong) is None and bool(((exact < 0) == wrong).all()):
            return Cause("the wrong values are 0, and the expected ones are negative", EXTRA_CLAMP)
        return Cause(_with_block(f"{share} are 0", wrong), NOT_WRITTEN)
    if _is_transposed(actual, exact):
        return Cause("the output is transposed: its last two dimensions are exchanged", TRANSPOSED)
    if (factor := _common(got, expected)) is not None:
        return Cause(_with_block(f"{share} are {factor:.6g} times the expected values", wrong), CONSTANT)
    if offset := _constant(got - expected):
        return Cause(_with_block(f"{share} are the expected values plus {offset:.6g}", wrong), CONSTANT)
    if (drift := _drift(got, expected)) is not None:
        direction = "far from" if drift > 0 else "near"
        return Cause(f"{share} are too {direction} 0, by about {abs(drift):.1e} of themselves", DRIFT)
    block = _wrong_block(wrong)
    return None if block is None else Cause(f"the wrong values are {block}")


def _with_block(clause: str, wrong: torch.Tensor) -> str:
    block = _wrong_block(wrong)
    return clause if block is None else f"{clause}, {block}"


def _common(got: torch.Tensor, expected: torch.Tensor) -> float | None:
    """Return the factor between the values; None if the factor is not the same for all large values."""
    large = expected.abs() > _LARGE * expected.square().mean().sqrt()
    factors = got[large] / expected[large]
    return _constant(factors, away_from=(0.0, 1.0)) if int(large.sum()) >= _LEAST else None


def _drift(got: torch.Tensor, expected: torch.Tensor) -> float | None:
    """Return the median relative error if all values are off in the same direction, by about as much; else None."""
    if len(got) < _MANY or not bool(expected.all()):
        return None
    errors = got / expected - 1.0
    middle = float(errors.median())
    parts = errors / middle if middle else errors
    is_alike = bool(((parts >= _ALIKE[0]) & (parts <= _ALIKE[1])).all())
    return middle if is_alike and 0 < abs(middle) <= _DRIFT else None


def _constant(values: torch.Tensor, *, away_from: Sequence[float] = (0.0,)) -> float | None:
    """Return the median of values that scatter far less than the median differs from each of `away_from`."""
    middle = float(values.median())
    distance = min(abs(middle - value) for value in away_from)
    return middle if bool(((values - middle).abs() <= _SAME * distance).all()) else None


def _is_transposed(actual: torch.Tensor, exact: torch.Tensor) -> bool:
    if exact.dim() < 2 or not bool(torch.isfinite(actual).all() & torch.isfinite(exact).all()):
        return False
    turned = exact.mT.reshape(exact.shape)
    limit = _SAME * exact.square().mean().sqrt()
    differs = bool(((turned - exact).abs() > 2 * limit).any())
    return differs and bool(((actual.double() - turned).abs() <= limit).all())


def _wrong_block(wrong: torch.Tensor) -> str | None:
    """Return the smallest block of indices with all wrong elements; None if wrong elements lie anywhere.

    Elsewhere, all elements are right. A block is named if nearly all of its elements are wrong, or if it is so small
    that as many wrong elements would not be in it by chance.
    """
    ranges: list[tuple[int, int, int]] = []
    block = wrong
    for dim in range(wrong.dim()):
        other_dims = [other_dim for other_dim in range(wrong.dim()) if other_dim != dim]
        indices = (wrong.any(dim=other_dims) if other_dims else wrong).nonzero().flatten()
        first, last = int(indices[0]), int(indices[-1])
        block = block.narrow(dim, first, last - first + 1)
        ranges.append((dim, first, last))
    is_full = bool(block.float().mean() >= _NEARLY_ALL)
    is_apart = int(wrong.sum()) >= _MANY and block.numel() <= _SMALL_BLOCK * wrong.numel()
    if not (is_full or is_apart):
        return None
    parts = [
        f"at {first if first == last else f'{first} to {last}'} of {extent} along dimension {dim}"
        for (dim, first, last), extent in zip(ranges, wrong.shape, strict=True)
        if last - first + 1 < extent * (1 if is_full else _HALF)
    ]
    return " and ".join(parts) or None


_HARDLY = 4.0
_FLAG = re.compile(r"(?<![\w-])-{0,2}use_fast_math\b")
_FUNCTION = re.compile(
    r"\b__(?:exp|exp10|log|log2|log10|pow|sin|cos|tan|sincos|tanh)f\b|\b__fdividef\b"
    r"|\b(?:tanh|ex2|lg2|sin|cos)\.approx\b|\bfast_(?:exp|log|pow|tanh|sin|cos|tan|divide)\w*"
)
"""Intrinsics of CUDA and of libdevice, and instructions of PTX, with fewer bits than the functions they replace."""


def near_tolerance(check: TensorCheck, source: str) -> Cause | None:
    """Return the likely cause of errors up to four times what is allowed; None for larger errors.

    Without approximate functions in the text `source`, nearly all values wrong are no matter of rounding.

    >>> check = TensorCheck("output", "float32", [130056192], False, 6.1e-5, 1.22, 0.3, 11, 0, None)
    >>> near_tolerance(check, 'extra_cuda_cflags=["-O3", "--use_fast_math"]').clause
    'the largest error is 1.22 times what is allowed, and the text has --use_fast_math'
    """
    if check.nonfinite or check.error_ratio is None or check.error_ratio > _HARDLY:
        return None
    clause = f"the largest error is {check.error_ratio:.3g} times what is allowed"
    if flag := _FLAG.search(source):
        return Cause(f"{clause}, and the text has {flag.group()}", NO_FAST_MATH)
    if names := list(dict.fromkeys(_FUNCTION.findall(source))):
        return Cause(f"{clause}, and the text has {', '.join(names[:3])}", ACCURATE_FUNCTIONS)
    is_part = 2 * check.mismatches < torch.Size(check.shape).numel()
    return Cause(clause, HARDLY_BEYOND) if is_part else None
