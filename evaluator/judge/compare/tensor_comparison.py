"""Comparison of a tensor with the expected tensor: values in, a record out, without processes or frames."""

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch

from evaluator.judge.compare.benchmark_rules import agrees
from evaluator.judge.compare.error_tally import LEVELS, STEP, ErrorTally, Far, First, merged, mismatch
from evaluator.judge.compare.row_sizes import (
    Overview,
    all_finite,
    as_rows,
    element_scale,
    is_exact,
    largest,
    may_exceed,
    overview_of,
    ratio_to,
    row_scale,
    selected,
)
from evaluator.judge.compare.steps import Steps, compare_steps
from evaluator.judge.compare.tolerance import Bounds, beside_rounded, last_place
from evaluator.records import Mismatch, TensorCheck, ToleranceRule, finite_or_none

_CHUNK_ELEMENTS = 1 << 22
"""Elements of a chunk: 4 Mi (some 200 MiB in float64 with temporaries)."""
_CHUNK_ELEMENTS_ON_CPU = 1 << 15
"""There a chunk with its temporaries fits into a core's cache: half the time (256 Ki elements, 2 cores)."""
SPARE = 32
"""Number of far elements beyond `multiple` times the honest reference's number, which is itself random. If a kernel
flips 32 elements on average and the reference 16, four pairs of draws in a million exceed the limit. For other averages
the number is smaller (computed from Poisson's distribution)."""
_SPARE_PART = 16
"""For small outputs: an element in 16."""


class Sides(NamedTuple):
    """The three values of an output, of equal shape: the submission's, the exact value, the honest reference's."""

    actual: torch.Tensor
    exact: torch.Tensor
    honest: torch.Tensor


def rows_from(sides: Sides, start: int) -> Sides:
    """Return the rows of an answer, from `start` on, that correspond to the expected values."""
    shape = sides.honest.shape
    return sides if sides.actual.shape == shape else sides._replace(actual=sides.actual[start : start + shape[0]])


Reading = Callable[[], TensorCheck]
"""End of a started comparison: waits for the result and returns the record. Keeps no tensor alive."""
Limit = Bounds | Steps | None
"""Limit of an output's errors: bounds, steps of a format of few bits, or None for elements that must be equal."""
Comparison = Callable[[str, Sides, Limit], Reading]
"""Start of an output's comparison; see `begin`."""


def compare(path: str, sides: Sides, bounds: Limit) -> TensorCheck:
    """Compare tensors of equal shape and dtype; see `begin`."""
    return begin(path, sides, bounds)()


def begin(
    path: str, sides: Sides, bounds: Limit, closely: Callable[[Sides, Bounds], Callable[[], ErrorTally]] | None = None
) -> Reading:
    """Start to compare tensors of equal shape and dtype, elementwise by `closely` (default: `compare_closely`).

    Without `bounds` (integers, booleans), elements must equal the exact or the honest value: a tie that float64 breaks
    differently is no error. An element passes only with an error proven to be within the tolerance. NaN proves nothing,
    and passes only where the honest reference has NaN too.
    """
    dtype, shape = sides.honest.dtype, sides.honest.shape
    if isinstance(bounds, Steps):
        tally = compare_steps(*sides, bounds)
        return functools.partial(_reading, path, dtype, shape, lambda: tally, None)
    bounds = None if bounds is None else beside_rounded(bounds, sides.exact.dtype, dtype)
    if sides.honest.is_complex():
        dtype, shape = dtype.to_real(), torch.Size([*shape, 2])
        # A row has both parts of all its elements.
        sides = Sides(*(torch.view_as_real(as_rows(side).resolve_conj()).flatten(1) for side in sides))
    end = _compare_exactly(sides) if bounds is None else (closely or compare_closely)(sides, bounds)
    return functools.partial(_reading, path, dtype, shape, end, bounds)


def _reading(
    path: str, dtype: torch.dtype, shape: torch.Size, end: Callable[[], ErrorTally], bounds: Bounds | None
) -> TensorCheck:
    tally = end() if bounds is None else _counted_out(end(), bounds, shape.numel())
    return TensorCheck(
        path=path,
        dtype=str(dtype).removeprefix("torch."),
        shape=list(shape),
        ok=tally.mismatches == 0,
        max_abs_error=None if tally.nonfinite else finite_or_none(tally.max_abs_error),
        error_ratio=None if tally.nonfinite else finite_or_none(tally.ratio),
        honest_error_ratio=finite_or_none(tally.honest_ratio),
        mismatches=tally.mismatches,
        nonfinite=tally.nonfinite,
        first_mismatch=None if tally.first is None else mismatch(tally.first, shape),
        tolerance=finite_or_none(tally.tolerance) or None,
    )


def _counted_out(tally: ErrorTally, bounds: Bounds, elements: int) -> ErrorTally:
    """Fail all far elements if the honest reference's own far errors do not explain their number.

    If the largest honest error alone set the limit, a single flipped element would widen the tolerance of all elements.
    """
    spare = min(SPARE, elements // _SPARE_PART)
    far = tally.far
    if tally.mismatches or all(
        count <= bounds.multiple * honest + spare for count, honest in zip(far.counts, far.honest, strict=True)
    ):
        return tally
    return tally._replace(ratio=far.ratio, mismatches=far.counts[0], first=far.first)


def joined(parts: list[TensorCheck]) -> TensorCheck:
    """Return the record of an output from the records of its blocks, consecutive along dimension 0."""
    first = parts[0]
    if len(parts) == 1:
        return first
    starts = list(itertools.accumulate((part.shape[0] for part in parts), initial=0))
    mismatch = next(
        (
            Mismatch([start + wrong.index[0], *wrong.index[1:]], wrong.expected, wrong.actual)
            for start, part in zip(starts, parts, strict=False)
            if (wrong := part.first_mismatch) is not None
        ),
        None,
    )
    return TensorCheck(
        path=first.path,
        dtype=first.dtype,
        shape=[starts[-1], *first.shape[1:]],
        ok=all(part.ok for part in parts),
        max_abs_error=_largest_or_none([part.max_abs_error for part in parts]),
        error_ratio=_largest_or_none([part.error_ratio for part in parts]),
        honest_error_ratio=_largest_or_none([part.honest_error_ratio for part in parts]),
        mismatches=sum(part.mismatches for part in parts),
        nonfinite=sum(part.nonfinite for part in parts),
        first_mismatch=mismatch,
        tolerance=_largest_or_none([part.tolerance for part in parts]),
    )


def _largest_or_none(values: list[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return max(numbers) if len(numbers) == len(values) else None


def _compare_exactly(sides: Sides) -> Callable[[], ErrorTally]:
    actual, exact, honest = (side.reshape(-1) for side in sides)
    bad = (actual != honest) & (actual != exact)
    count = int(bad.sum())
    if count == 0:
        return ErrorTally
    distance = (actual.double() - honest.double()).abs()[bad]
    first = _first(bad, actual, exact, 0)
    tally = ErrorTally(max_abs_error=float(distance.max()), ratio=float("inf"), mismatches=count, first=first)
    return lambda: tally


def compare_closely(sides: Sides, bounds: Bounds) -> Callable[[], ErrorTally]:
    """Compare every element with its own bound, chunk by chunk. The comparison is complete on return."""
    shape = sides.honest.shape
    rows = [as_rows(side) for side in sides]
    width = max(rows[0].shape[1], 1)
    most = _CHUNK_ELEMENTS_ON_CPU if rows[0].device.type == "cpu" else _CHUNK_ELEMENTS
    step = max(1, most // width)
    chunks = [[side[start : start + step] for side in rows] for start in range(0, rows[0].shape[0], step)]
    if rows[0].device.type == "cpu" and all(is_exact(*chunk) for chunk in chunks):
        return functools.partial(ErrorTally, tolerance=tolerance(bounds, 0.0))
    overview = overview_of(chunks, bounds, shape)
    tally = ErrorTally(tolerance=tolerance(bounds, overview.honest_error))
    for index, (actual, exact, honest) in enumerate(chunks):
        part = _compare_chunk(actual, exact, honest, bounds, overview, index, shape, start=index * step * width)
        tally = merged(tally, part)
    return lambda: tally


def _compare_chunk(
    actual: torch.Tensor,
    exact: torch.Tensor,
    honest: torch.Tensor,
    bounds: Bounds,
    overview: Overview,
    index: int,
    shape: torch.Size,
    *,
    start: int,
) -> ErrorTally:
    values = _allowed(actual, exact, honest, bounds, overview, index, shape)
    got, plain, wide, allowed = values.got, values.plain, values.wide, values.allowed
    error = (got - wide).abs()
    of_honest = (plain - wide).abs()
    has_finite_got, has_finite_plain = all_finite(got), all_finite(plain)
    bad = _beyond_allowed(values, error, is_finite=has_finite_got and has_finite_plain and values.is_finite)
    mismatches = int(bad.sum())
    # Selecting elements is slow, and without NaN and infinity superfluous.
    finite = None if has_finite_got and values.is_finite else torch.isfinite(got) & torch.isfinite(wide)
    honest_finite = None if has_finite_plain and values.is_finite else torch.isfinite(plain) & torch.isfinite(wide)
    ratio = largest(selected(ratio_to(error, allowed), finite))
    if values.agreed is not None and not mismatches:
        ratio = min(ratio, 1.0)  # The allowed error is rounded to the dtype by KernelBench's rule alone.
    far = Far()
    if values.scale is not None and values.rounding is not None:
        finite_honest = of_honest if all_finite(of_honest) else torch.where(torch.isfinite(of_honest), of_honest, 0.0)
        finite_error = error if finite is None else torch.where(finite, error, 0.0)
        far = _far(actual, exact, finite_error, finite_honest, bounds, values.scale, values.rounding, start)
    return ErrorTally(
        max_abs_error=largest(selected(error, finite)),
        ratio=ratio,
        honest_ratio=largest(selected(ratio_to(of_honest, allowed), honest_finite)),
        mismatches=mismatches,
        nonfinite=0 if finite is None else int((bad & ~finite).sum()),
        first=_first(bad.reshape(-1), actual.reshape(-1), exact.reshape(-1), start) if mismatches else None,
        far=far,
    )


class _Allowed(NamedTuple):
    """Values in float64, and the allowed error of each element. `is_finite` is about the values `wide`.

    Errors are relative to `scale`; `rounding` is that of each element, and no error. KernelBench's rule has neither,
    and decides by `agreed`, the accepted elements.
    """

    got: torch.Tensor
    plain: torch.Tensor
    wide: torch.Tensor
    is_finite: bool
    allowed: torch.Tensor
    scale: torch.Tensor | None = None
    rounding: torch.Tensor | None = None
    agreed: torch.Tensor | None = None


def _allowed(
    actual: torch.Tensor,
    exact: torch.Tensor,
    honest: torch.Tensor,
    bounds: Bounds,
    overview: Overview,
    index: int,
    shape: torch.Size,
) -> _Allowed:
    got, plain = actual.double(), honest.double()
    if bounds.rule is ToleranceRule.KERNELBENCH:
        allowed = bounds.floor + bounds.unit * got.abs()
        return _Allowed(got, plain, plain, all_finite(plain), allowed, agreed=agrees(actual, honest))
    rows = overview.scales[index]
    is_finite = rows is not None
    if rows is None:
        wide = torch.where(torch.isfinite(exact), exact.double(), plain)
        is_finite = all_finite(wide)
        rows = row_scale(wide, overview.whole_square, bounds, is_finite=is_finite)
    else:
        wide = exact.double()
    size = wide.abs()
    scale = element_scale(rows, size, overview.columns, shape)
    rounding = bounds.unit * last_place(size) + bounds.smallest
    allowed = tolerance(bounds, overview.honest_error) * scale + rounding
    return _Allowed(got, plain, wide, is_finite, allowed, scale, rounding)


def _beyond_allowed(values: _Allowed, error: torch.Tensor, *, is_finite: bool) -> torch.Tensor:
    """Return where the errors exceed the allowed errors. `is_finite` is about all values."""
    if values.agreed is not None:
        return ~values.agreed
    got, plain, wide = values.got, values.plain, values.wide
    close = error <= values.allowed
    if is_finite:
        return ~close
    same = (got == plain) | (got.isnan() & plain.isnan())
    close &= torch.isfinite(got) & torch.isfinite(wide)
    return ~torch.where(torch.isfinite(plain), close, same | close)


def wrong_elements(sides: Sides, bounds: Bounds) -> torch.Tensor:
    """Return where an output is beyond the tolerance of its elements, as booleans in the output's shape."""
    bounds = beside_rounded(bounds, sides.exact.dtype, sides.honest.dtype)
    actual, exact, honest = rows = [as_rows(side) for side in sides]
    shape = sides.honest.shape
    values = _allowed(actual, exact, honest, bounds, overview_of([rows], bounds, shape), 0, shape)
    is_finite = values.is_finite and all_finite(values.got, values.plain)
    wrong = _beyond_allowed(values, (values.got - values.wide).abs(), is_finite=is_finite)
    return wrong.reshape(sides.honest.shape)


def tolerance(bounds: Bounds, honest_error: float) -> float:
    """Return the allowed error of an element beyond its own rounding, relative to its scale (`element_scale`)."""
    return 0.0 if bounds.rule is ToleranceRule.KERNELBENCH else max(bounds.multiple * honest_error, bounds.floor)


def _far(
    actual: torch.Tensor,
    exact: torch.Tensor,
    error: torch.Tensor,
    honest_error: torch.Tensor,
    bounds: Bounds,
    scale: torch.Tensor,
    rounding: torch.Tensor,
    start: int,
) -> Far:
    """Count errors beyond each level: a part of the scale, plus the element's own rounding."""
    far, seldom = (level * scale for level in bounds.counted_from)
    counted = Far()
    if may_exceed(honest_error, seldom) and bool((honest_error > seldom + rounding).any()):
        counted = counted._replace(honest=_beyond(honest_error, seldom, rounding))
    if not may_exceed(error, far):
        return counted
    beyond = error > far + rounding
    if not beyond.any():
        return counted
    return counted._replace(
        counts=_beyond(error, far, rounding),
        ratio=largest(ratio_to(error, far + rounding)[beyond]),
        first=_first(beyond.reshape(-1), actual.reshape(-1), exact.reshape(-1), start),
    )


def _beyond(error: torch.Tensor, level: torch.Tensor, rounding: torch.Tensor) -> tuple[int, ...]:
    return tuple(int((error > level * STEP**index + rounding).sum()) for index in range(LEVELS))


def _first(bad: torch.Tensor, actual: torch.Tensor, exact: torch.Tensor, start: int) -> First:
    """Return the first `bad` element; its position counts from `start`."""
    position = int(bad.to(torch.uint8).argmax())
    return First(start + position, exact[position].item(), actual[position].item())
