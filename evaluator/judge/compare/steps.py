"""Comparison of outputs in formats of few bits, in steps of the format.

The last operation of such an output rounds to the nearest of few values. If the exact value lies near the middle
between two neighbours, an honest kernel may return either, one step apart. An error of two steps is never a rounding.

An element passes if its value is at most one step from the exact or from the honest value, or within the tolerance of
the problem's arithmetic, relative to the row (`Steps.floor`): near zero, steps of fp8 are smaller than the rounding of
fp32. Few values lie near a middle, so only few elements may be a step off: `multiple` times as many as in the honest
reference, plus a small part, and never more than a fifth. Otherwise a kernel that cuts off in place of rounding would
pass. A row of equal exact values counts as one element, if few of such rows are off: one rounding decides all of it.

Elements of block formats are compared after dequantisation, in steps of the exact value's block. Scales one step of
e4m3 apart, or twice as large, keep the nearest values within one step (computed for 240,000 values). Twice too large a
scale gives a sixth of the values an error of more than half of a step, which is too many.
"""

import functools
import math
from typing import NamedTuple

import torch

from evaluator.judge.compare.error_tally import ErrorTally, First, merged
from evaluator.judge.compare.row_sizes import SMALL_ROW, along_last, as_rows, largest, ratio_to
from evaluator.judge.tensors.number_formats import (
    comparable,
    dequantised,
    elements,
    is_packed,
    place_of,
    scale_values,
    values_of,
)
from evaluator.records import ElementFormat

_CHUNK_ELEMENTS = 1 << 21
"""Elements of a chunk of rows: some 300 MiB in float64 with temporaries."""
_STEP = 1 + 2.0**-20
"""One step. The quotients of dequantised values by a scale are rounded."""
_OFF = 0.5
"""Distance from which an element counts as one step off: half of a step. Only block formats have fractions."""
_FEW_PART = 64
"""One element in 64 may be a step off. A kernel that rounds down is off in half of the elements, and a quantiser to
int8 of normal values rounded to bf16 in 4 %. Of normal values drawn in bf16, 0.7 % differ in e2m1 if ties are rounded
away from even."""
_FEW = 4
FEW_ONE_IN = 16
"""In small outputs and blocks: one element in 16, at most 4 elements. Of fewer than 16 elements, none may be a step off
that the honest reference is not, too."""
_MOST_PART = 5
"""Never may more than one element in 5 be a step off. In bf16, 4 x the honest reference's steps would allow 84 % for
uniform values in int8, whose quotients have two bits of fraction less. Of 512 rows of such values, a kernel that cuts
off is off in 36 %, one that computes the quotient in bf16 in 5 %, and one that computes in fp32 in 0.1 %."""


class Steps(NamedTuple):
    """Limit of an output in a format of few bits: one step of `form`.

    `floor` is the tolerance of the problem's arithmetic, relative to a row's root mean square. `multiple` applies to
    the number of honest elements one step off. `scales` has the scales of the blocks of the actual, exact and honest
    output; None for a format without blocks.
    """

    form: ElementFormat
    floor: float
    multiple: float
    scales: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None


class _Decoded(NamedTuple):
    """Elements of a chunk: three values, and the distances in steps of the actual and the honest value."""

    actual: torch.Tensor
    exact: torch.Tensor
    honest: torch.Tensor
    distance: torch.Tensor
    honest_distance: torch.Tensor


class _Off(NamedTuple):
    """Numbers of elements a step off in rows of different values, and in rows of equal values; number of such rows."""

    elements: int
    in_equal_rows: int
    equal_rows: int


class _Chunk(NamedTuple):
    """Result of a chunk. `off` and `honest_off` are about the answer and the honest value."""

    result: ErrorTally
    off: _Off
    honest_off: _Off
    first_off: First | None


def compare_steps(actual: torch.Tensor, exact: torch.Tensor, honest: torch.Tensor, limit: Steps) -> ErrorTally:
    """Compare codes of equal shape. Positions count elements of the tensors, which are bytes in packed formats."""
    # Blocks lie along the last dimension, also of a single byte, and so do scales, also a single one for each row.
    in_rows = as_rows if limit.scales is None else along_last
    sides = [in_rows(side) for side in (actual, exact, honest)]
    scales = None if limit.scales is None else [in_rows(side) for side in limit.scales]
    # Rows of equal codes are right, and most rows are equal: only the others are decoded.
    rows = _differ(sides) if scales is None else _differ(sides) | _differ(scales)
    numbers = rows.nonzero().reshape(-1)
    if not numbers.numel():
        return ErrorTally()
    exact_scales = None if scales is None else scales[1]
    small_square = _mean_square(sides[1], exact_scales, limit.form) * SMALL_ROW**2
    alike = _alike(sides[1], exact_scales, limit.form)
    chunks = []
    for piece in torch.split(numbers, max(_CHUNK_ELEMENTS // max(sides[0].shape[1], 1), 1)):
        piece_sides = [_rows(side, piece) for side in sides]
        piece_scales = None if scales is None else [_rows(side, piece) for side in scales]
        chunks.append(_compare_chunk(_values(piece_sides, piece_scales, limit.form), limit, small_square, piece, alike))
    tally = functools.reduce(merged, (chunk.result for chunk in chunks))
    off, honest_off = _total([chunk.off for chunk in chunks]), _total([chunk.honest_off for chunk in chunks])
    allowed = _allowed(honest.numel(), limit.multiple * (honest_off.elements + honest_off.equal_rows))
    few_rows = off.equal_rows <= max(_FEW, int(alike.sum()) // _MOST_PART)
    count = off.elements + (off.equal_rows if few_rows else off.in_equal_rows)
    if tally.mismatches or count <= allowed:
        return tally
    # Too many elements are a step off: all of these are wrong.
    first = next((chunk.first_off for chunk in chunks if chunk.first_off is not None), None)
    return tally._replace(
        ratio=max(tally.ratio, count / allowed if allowed else math.inf),
        mismatches=off.elements + off.in_equal_rows,
        first=first,
    )


def _allowed(count: int, honestly: float) -> float:
    """Return how many of `count` elements may be a step off, from the number that the honest reference explains."""
    spare = max(count // _FEW_PART, min(_FEW, count // FEW_ONE_IN))
    return min(honestly + spare, count // _MOST_PART)


def _compare_chunk(
    values: _Decoded, limit: Steps, small_square: float, rows: torch.Tensor, alike: torch.Tensor
) -> _Chunk:
    actual, exact, honest = values.actual, values.exact, values.honest
    finite = actual.isfinite() & exact.isfinite() & honest.isfinite()
    scale = torch.where(finite, exact, 0.0).square().mean(1, keepdim=True).clamp(min=small_square).sqrt()
    allowed = (limit.floor * scale).expand_as(exact)
    error = torch.where(finite, torch.minimum((actual - exact).abs(), (actual - honest).abs()), 0.0)
    honest_error = torch.where(finite, (honest - exact).abs(), 0.0)
    ratio = torch.minimum(values.distance / _STEP, ratio_to(error, allowed))
    honest_ratio = torch.minimum(values.honest_distance / _STEP, ratio_to(honest_error, allowed))
    same = (actual == honest) | (actual == exact) | (actual.isnan() & honest.isnan())
    wrong = _by_element(torch.where(finite, ratio > 1, ~same), limit.form)
    off = _by_element(finite & (values.distance > _OFF) & (error > allowed), limit.form)
    honest_off = _by_element(finite & (values.honest_distance > _OFF) & (honest_error > allowed), limit.form)
    result = ErrorTally(
        max_abs_error=largest(error),
        ratio=largest(ratio[finite]),
        honest_ratio=largest(honest_ratio[finite]),
        mismatches=int(wrong.sum()),
        nonfinite=int(_by_element(~finite & ~same, limit.form).sum()),
        first=_first(wrong, values, limit.form, rows),
    )
    equal = alike[rows]
    return _Chunk(result, _off(off, equal), _off(honest_off, equal), _first(off, values, limit.form, rows))


def _off(flags: torch.Tensor, alike: torch.Tensor) -> _Off:
    in_equal_rows = flags[alike]
    return _Off(int(flags[~alike].sum()), int(in_equal_rows.sum()), int(in_equal_rows.any(1).sum()))


def _total(parts: list[_Off]) -> _Off:
    return _Off(*(sum(numbers) for numbers in zip(*parts, strict=True)))


def _alike(exact: torch.Tensor, scales: torch.Tensor | None, form: ElementFormat) -> torch.Tensor:
    """Return which rows have a single exact value: one rounding decides all its codes. Zero is never near a middle."""
    codes = exact.view(torch.uint8)
    alike = (codes == codes[:, :1]).all(1) & (codes != 0).any(1)
    if is_packed(form):
        alike &= ((codes & 0xF) == (codes >> 4)).all(1)
    if scales is not None:
        of_blocks = scales.view(torch.uint8)
        alike &= (of_blocks == of_blocks[:, :1]).all(1)
    return alike


def _differ(sides: list[torch.Tensor]) -> torch.Tensor:
    """Return which rows have other codes on the actual or on the honest side than on the exact side."""
    actual, exact, honest = (comparable(side) for side in sides)
    return (actual != exact).any(1) | (honest != exact).any(1)


def _rows(side: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Return rows by number. On the CPU, PyTorch indexes fp8 as bytes."""
    return comparable(side)[numbers].view(side.dtype)


def _values(sides: list[torch.Tensor], scales: list[torch.Tensor] | None, form: ElementFormat) -> _Decoded:
    parts = [elements(side, form) for side in sides]
    if scales is None:
        (actual, at), (exact, exact_at), (honest, honest_at) = parts
        distance = torch.minimum((at - exact_at).abs(), (at - honest_at).abs()).double()
        return _Decoded(actual, exact, honest, distance, (honest_at - exact_at).abs().double())
    actual, exact, honest = (dequantised(part.values, scale, form) for part, scale in zip(parts, scales, strict=True))
    exact_scale, honest_scale = (scale_values(scale, exact.shape[1], form) for scale in scales[1:])
    distance = torch.minimum(_in_steps(actual, exact, exact_scale), _in_steps(actual, honest, honest_scale))
    return _Decoded(actual, exact, honest, distance, _in_steps(honest, exact, exact_scale))


def _in_steps(one: torch.Tensor, other: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the distance of two dequantised values in steps of e2m1 times a block's scale; 0 between equal values."""
    distance = (place_of(one / scale) - place_of(other / scale)).abs()
    return torch.where(one == other, 0.0, torch.where(scale > 0, distance, torch.inf))


def _mean_square(exact: torch.Tensor, scales: torch.Tensor | None, form: ElementFormat) -> float:
    total, count = 0.0, 0
    step = max(_CHUNK_ELEMENTS // max(exact.shape[1], 1), 1)
    for number, part in enumerate(torch.split(exact, step)):
        values = values_of(part, form)
        if scales is not None:
            values = dequantised(values, scales[number * step : (number + 1) * step], form)
        total += float(torch.nan_to_num(values, 0.0, 0.0, 0.0).square_().sum(dtype=torch.float64))
        count += values.numel()
    return total / max(count, 1)


def _by_element(flags: torch.Tensor, form: ElementFormat) -> torch.Tensor:
    """Return flags of the tensor's elements: of a packed byte, whether a flag of its two elements is set."""
    return (flags[:, ::2] | flags[:, 1::2]) if is_packed(form) else flags


def _first(flags: torch.Tensor, values: _Decoded, form: ElementFormat, rows: torch.Tensor) -> First | None:
    """Return the position of the first flag, and the expected and actual value: of a byte, the element further off.

    `rows` holds the numbers of the flags' rows in the whole output.
    """
    if not bool(flags.any()):
        return None
    position = int(flags.reshape(-1).to(torch.uint8).argmax())
    elements_per_byte = 2 if is_packed(form) else 1
    inside = slice(position * elements_per_byte, (position + 1) * elements_per_byte)
    exact, actual = (side.reshape(-1)[inside] for side in (values.exact, values.actual))
    furthest = int(torch.nan_to_num((actual - exact).abs(), nan=torch.inf).argmax())
    row, column = divmod(position, flags.shape[1])
    return First(int(rows[row]) * flags.shape[1] + column, float(exact[furthest]), float(actual[furthest]))
