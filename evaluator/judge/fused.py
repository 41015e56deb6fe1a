"""The comparison of `compare` on a GPU, by kernels of our own: some 30 times as fast, and it takes no memory.

At full size the comparison would otherwise take most of a grade: it reads each of three tensors thirty times.
"""

import ctypes
import math
from collections.abc import Sequence

import torch

from evaluator.devices import driver
from evaluator.judge.compare import SMALL_ROW, Sides, Tally, as_rows, compare, compare_closely
from evaluator.judge.tolerance import Bounds
from evaluator.records import TensorCheck, ToleranceRule

# As in native/compare.cu.
_TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
_PIECE = 1 << 16
"""Elements of a row that one warp adds up."""
_BLOCKS, _THREADS = 132 * 16, 256


class FusedComparison:
    """Compares tensors on a GPU."""

    def __init__(self, kernels: bytes) -> None:
        """Load `kernels`, a cubin for this GPU, into the current context."""
        module = driver.load_module(kernels)
        self._rows = driver.kernel(module, "warpgrade_rows")
        self._honest_error = driver.kernel(module, "warpgrade_honest_error")
        self._compare = driver.kernel(module, "warpgrade_compare")

    def compare(self, path: str, sides: Sides, bounds: Bounds | None) -> TensorCheck:
        """Compare tensors of equal shape and dtype; see `compare.compare`."""
        return compare(path, sides, bounds, closely=self._closely)

    def _closely(self, sides: Sides, bounds: Bounds) -> Tally:
        if bounds.rule is ToleranceRule.KERNELBENCH or any(side.dtype not in _TYPES for side in sides):
            return compare_closely(sides, bounds)
        actual, exact, honest = (as_rows(side).contiguous() for side in sides)
        rows, width = actual.shape
        sums = torch.zeros(2, rows, dtype=torch.float64, device=actual.device)
        pieces = max(rows * math.ceil(width / _PIECE), 1)
        wanted = [*_tensor(exact), *_tensor(honest)]
        self._launch(self._rows, [*wanted, *_numbers(rows, width, _PIECE), *_pointers(sums[0], sums[1])], warps=pieces)
        squares, counts = sums
        total = counts.sum()
        whole_square = torch.where(total > 0, squares.sum() / total, torch.zeros_like(total))
        scales = (squares / counts.clamp(min=1)).clamp(min=whole_square * SMALL_ROW**2).sqrt()
        error = torch.zeros(1, dtype=torch.float64, device=actual.device)
        count = actual.numel()
        self._launch(self._honest_error, [*wanted, *_numbers(count, width), *_pointers(scales, error)], warps=count)
        doubles = torch.zeros(6, dtype=torch.float64, device=actual.device)
        doubles[5:].view(torch.int64).fill_(count)
        self._launch(
            self._compare,
            [
                *_tensor(actual),
                *wanted,
                *_numbers(count, width),
                *_pointers(scales, error),
                *(ctypes.c_double(number) for number in (bounds.multiple, bounds.floor, bounds.unit)),
                *_pointers(doubles),
            ],
            warps=count,
        )
        largest, ratio, honest_ratio = doubles[:3].tolist()
        mismatches, nonfinite, first = doubles[3:].view(torch.int64).tolist()
        return Tally(largest, ratio, honest_ratio, mismatches, nonfinite, first if mismatches else None)

    def _launch(self, function: int, arguments: Sequence[driver.Argument], *, warps: int) -> None:
        driver.launch(
            function,
            blocks=max(min(_BLOCKS, math.ceil(warps * 32 / _THREADS)), 1),
            threads=_THREADS,
            stream=torch.cuda.current_stream().cuda_stream,
            arguments=arguments,
        )


def _tensor(tensor: torch.Tensor) -> list[driver.Argument]:
    return [ctypes.c_uint64(tensor.data_ptr()), ctypes.c_int(_TYPES[tensor.dtype])]


def _numbers(*numbers: int) -> list[driver.Argument]:
    return [ctypes.c_int64(number) for number in numbers]


def _pointers(*tensors: torch.Tensor) -> list[driver.Argument]:
    return [ctypes.c_uint64(tensor.data_ptr()) for tensor in tensors]
