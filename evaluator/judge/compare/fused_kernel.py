"""Comparison of `tensor_comparison` in GPU kernels of the judge: about 30 times as fast, without temporary memory.

At full size, the comparison by PyTorch would take most of a grade: each of three tensors is read thirty times. No step
waits for the GPU before a result is requested, as a large output has dozens of blocks.
"""

import ctypes
import functools
import itertools
import math
from collections.abc import Callable, Sequence

import torch

from evaluator.devices import driver
from evaluator.judge.compare.error_tally import LEVELS, ErrorTally, Far, First
from evaluator.judge.compare.row_sizes import SMALL_ROW, as_rows, column_limits, has_columns, is_vector_of_few
from evaluator.judge.compare.tensor_comparison import Limit, Reading, Sides, begin, compare_closely, tolerance
from evaluator.judge.compare.tolerance import Bounds
from evaluator.records import ToleranceRule

_TYPES = {torch.float32: "float", torch.float64: "double", torch.float16: "half", torch.bfloat16: "bfloat16"}
"""Names in native/compare.cu."""
_TASKS = 132 * 64 * 2
"""Target for the number of pieces: two for each warp that an H100's multiprocessors hold at once."""
_PIECES = 256, 1 << 16
"""Minimum and maximum elements of a row for a warp: a few loads per lane, and few enough to keep all warps busy."""
_BLOCKS, _THREADS, _WARP = 132 * 8, 256, 32
_SCALING_THREADS = 1024
_COLUMN_ROWS = 1 << 17
"""Rows whose columns are summed at once: 128 MiB in float64 for 128 columns."""
_DOUBLES = 8
_COUNTS = 4
_TALLY = _DOUBLES + _COUNTS + 2 * LEVELS
"""Length of a tally: numbers, then counts, then two counts for each level; see native/compare.cu."""


class _Rows(ctypes.Structure):
    _fields_ = (("rows", ctypes.c_int64), ("width", ctypes.c_int64), ("piece", ctypes.c_int64))


class _Bounds(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_double) for name in ("multiple", "floor", "unit", "far", "seldom", "smallest"))


class _Scale(ctypes.Structure):
    _fields_ = (("rows", ctypes.c_uint64), ("columns", ctypes.c_uint64), ("of_elements", ctypes.c_int32))


class FusedComparison:
    """Comparison of tensors on a GPU."""

    def __init__(self, kernels: bytes) -> None:
        """Use `kernels`, a cubin for this GPU."""
        self._kernels = kernels

    @functools.cached_property
    def _module(self) -> int:
        """Load the kernels into the current context, which the first tensor on the GPU has created."""
        return driver.load_module(self._kernels)

    def begin(self, path: str, sides: Sides, bounds: Limit) -> Reading:
        """Start to compare tensors of equal shape and dtype; see `tensor_comparison.begin`."""
        return begin(path, sides, bounds, closely=self._closely)

    def _closely(self, sides: Sides, bounds: Bounds) -> Callable[[], ErrorTally]:
        kinds = _kinds(sides)
        if bounds.rule is ToleranceRule.KERNELBENCH or kinds is None or not sides.honest.numel():
            return compare_closely(sides, bounds)
        actual, exact, honest = (as_rows(side).contiguous() for side in sides)
        rows, width = actual.shape
        count = actual.numel()
        piece = min(max(math.ceil(count / _TASKS), _PIECES[0]), _PIECES[1])
        shape = _Rows(rows, width, piece)
        tasks = rows * math.ceil(width / piece)
        squares, counts = torch.zeros(2, rows, dtype=torch.float64, device=actual.device)
        tally = torch.zeros(_TALLY + 1, dtype=torch.float64, device=actual.device)
        error = tally[_TALLY:]
        arguments = [*_pointers(exact, honest), shape, ctypes.c_double(bounds.fill), *_pointers(squares, counts)]
        self._launch(f"rows_{kinds}", arguments, tasks)
        driver.launch(
            driver.kernel(self._module, "warpgrade_scales"),
            blocks=1,
            threads=_SCALING_THREADS,
            stream=torch.cuda.current_stream().cuda_stream,
            arguments=[
                ctypes.c_int64(rows),
                ctypes.c_int64(count),
                *_pointers(squares, counts),
                ctypes.c_double(SMALL_ROW),
                *_pointers(tally),
            ],
        )
        columns = column_limits(torch.split(exact, _COLUMN_ROWS), bounds) if has_columns(sides.honest.shape) else None
        scale = _Scale(
            squares.data_ptr(),
            0 if columns is None else columns.data_ptr(),
            is_vector_of_few(sides.honest.shape),
        )
        rounding = ctypes.c_double(bounds.unit), ctypes.c_double(bounds.smallest)
        self._launch(f"errors_{kinds}", [*_pointers(exact, honest), shape, scale, *rounding, *_pointers(error)], tasks)
        self._launch(
            f"compare_{kinds}",
            [
                *_pointers(actual, exact, honest),
                shape,
                scale,
                *_pointers(error),
                _Bounds(bounds.multiple, bounds.floor, bounds.unit, *bounds.counted_from, bounds.smallest),
                *_pointers(tally),
            ],
            tasks,
        )
        self._launch(f"first_{kinds}", _pointers(actual, exact, tally), 1)
        return lambda: _read(tally, bounds)

    def _launch(self, name: str, arguments: Sequence[driver.Argument], warps: int) -> None:
        """Launch a kernel with room for `warps` warps."""
        driver.launch(
            driver.kernel(self._module, f"warpgrade_{name}"),
            blocks=max(min(_BLOCKS, math.ceil(warps * _WARP / _THREADS)), 1),
            threads=min(_THREADS, warps * _WARP),
            stream=torch.cuda.current_stream().cuda_stream,
            arguments=arguments,
        )


def _kinds(sides: Sides) -> str | None:
    """Return the suffix of the kernels for the dtypes; None without kernels."""
    actual, exact, honest = (side.dtype for side in sides)
    if actual != honest or honest not in _TYPES or exact not in (honest, torch.float64):
        return None
    return f"{_TYPES[honest]}_{_TYPES[exact]}"


def _read(tally: torch.Tensor, bounds: Bounds) -> ErrorTally:
    """Wait for the end of a comparison, and return the tally.

    The tally outlives the tensors, and holds the values at the first mismatch.
    """
    tally = tally.cpu()
    largest, ratio, honest_ratio, *at_first, far_ratio, expected_at_far, actual_at_far = tally[:_DOUBLES].tolist()
    mismatches, nonfinite, first, first_far, *levels = tally[_DOUBLES:_TALLY].view(torch.int64).tolist()
    far = _from_the_last(levels[:LEVELS])
    return ErrorTally(
        max_abs_error=largest,
        ratio=ratio,
        honest_ratio=honest_ratio,
        mismatches=mismatches,
        nonfinite=nonfinite,
        first=First(first, *at_first) if mismatches else None,
        far=Far(
            counts=far,
            honest=_from_the_last(levels[LEVELS:]),
            ratio=far_ratio,
            first=First(first_far, expected_at_far, actual_at_far) if far[0] else None,
        ),
        tolerance=tolerance(bounds, float(tally[_TALLY])),
    )


def _from_the_last(counts: list[int]) -> tuple[int, ...]:
    """Return the number of errors beyond each level, from the numbers between neighbouring levels."""
    return tuple(itertools.accumulate(reversed(counts)))[::-1]


def _pointers(*tensors: torch.Tensor) -> list[driver.Argument]:
    return [ctypes.c_uint64(tensor.data_ptr()) for tensor in tensors]
