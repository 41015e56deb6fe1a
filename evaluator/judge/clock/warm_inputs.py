"""Warm inputs: the judge reads the inputs of a call or window just before the clock starts, so that L2 holds them.

The inputs were written before, and the cache was overwritten since. The order of reading makes the inputs of the first
call the most recent ones.
"""

import ctypes
from collections.abc import Sequence

import torch

from evaluator.devices import driver
from evaluator.protocol.answer_spans import answer_spans
from evaluator.protocol.frames import Call, Done, Items

_THREADS = 256
_BLOCKS = 1056
"""Eight blocks for each multiprocessor of an H100 or H200. A thread reads more than one sector of large inputs."""
_SECTOR_BYTES = 32


def warm_spans(frames: Sequence[Call], limit_bytes: int) -> list[tuple[int, int]]:
    """Return offset and size of the inputs to read, at most `limit_bytes` of each call, last call first.

    The inputs of a call without the model's own work are read too: the time until `go` must be the same.
    """
    spans: list[tuple[int, int]] = []
    for frame in reversed(frames):
        left_bytes = limit_bytes
        for offset, size_bytes in _inputs(frame):
            if (read_bytes := min(size_bytes, left_bytes)) > 0:
                spans.append((offset, read_bytes))
                left_bytes -= read_bytes
    return spans


def _inputs(frame: Call) -> list[tuple[int, int]]:
    nodes = [frame.args, frame.kwargs, *([] if frame.output_gradients is None else [frame.output_gradients])]
    return list(answer_spans(Done(index=0, outputs=Items(is_tuple=False, items=list(nodes)))))


class InputReader:
    """The kernel that reads inputs, in the judge's context."""

    def __init__(self, module: int, inputs: torch.Tensor) -> None:
        """Launch the kernel once: a first launch synchronizes with the GPU, which a call's queue must not."""
        self._kernel = driver.kernel(module, "warpgrade_touch")
        self._inputs = inputs
        self._sink = torch.zeros(1, dtype=torch.int32, device="cuda")
        self.read([(0, min(inputs.numel(), _SECTOR_BYTES))], stream=torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()

    def read(self, spans: Sequence[tuple[int, int]], *, stream: int) -> None:
        """Queue the reading of `spans` on `stream`, in order."""
        start, end = self._inputs.data_ptr(), self._inputs.data_ptr() + self._inputs.numel()
        for offset, size_bytes in spans:
            first = (start + offset) // _SECTOR_BYTES * _SECTOR_BYTES
            last = min(start + offset + size_bytes, end)
            sectors = -(-(last - first) // _SECTOR_BYTES)
            driver.launch(
                self._kernel,
                blocks=min(-(-sectors // _THREADS), _BLOCKS),
                threads=_THREADS,
                stream=stream,
                arguments=[
                    ctypes.c_uint64(first),
                    ctypes.c_int64(sectors),
                    ctypes.c_uint64(self._sink.data_ptr()),
                ],
            )
