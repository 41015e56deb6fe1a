"""The judge's kernels around a call on a GPU: samples of outputs, and warm inputs.

Random elements of every output tensor are read inside the timed interval, at positions drawn for each call. The gather
kernel (`native/gather.cu`) gets the shapes from the judge and the locations from the runner (`devices/memory.py`).

For warm inputs, the judge reads the inputs of a call or window just before the clock starts, so that L2 holds them. The
inputs were written before, and the cache was overwritten since. The order of reading makes the inputs of the first
call the most recent ones.
"""

import ctypes
import secrets
import struct
from collections.abc import Mapping, Sequence

import torch

from evaluator.devices import driver
from evaluator.devices.memory import MAX_DIMENSIONS, MAX_PLACES
from evaluator.errors import ProblemError
from evaluator.judge.clock.clock import OutputSample
from evaluator.protocol.frames import Call, Done, Items
from evaluator.protocol.pytree import answer_spans

SAMPLES = 16_384
"""Elements read inside the timed interval. If 0.1 % of an output came late, the samples would miss the delay once in
10**7 calls."""
SLOT_BYTES = 16
"""Size of the largest element, complex128."""
_SHAPE = struct.Struct(f"<II{MAX_DIMENSIONS}q")


class Sampling:
    """Arguments of the gather kernel for the tensors of `outline`: the shapes, and the tensor of each sample.

    Tensors without elements are not sampled.
    """

    def __init__(self, outline: Mapping[str, torch.Tensor], device: str) -> None:
        """Distribute the samples. Raises ProblemError if the tensors outnumber the places in the page."""
        chosen = {path: tensor for path, tensor in outline.items() if tensor.numel()}
        if len(chosen) > MAX_PLACES:
            message = f"the reference returns {len(chosen)} tensors, gradients included; the limit is {MAX_PLACES}"
            raise ProblemError(message, hint="return fewer tensors, for example a sum or a stack")
        self._device = device
        self._described = _described(outline)
        self.paths = list(chosen)
        self._sizes = [tensor.numel() for tensor in chosen.values()]
        self._item_bytes = [tensor.element_size() for tensor in chosen.values()]
        self._counts = shares(self._sizes)
        records = [
            _SHAPE.pack(tensor.element_size(), tensor.dim(), *tensor.shape, *(1,) * (MAX_DIMENSIONS - tensor.dim()))
            for tensor in chosen.values()
        ]
        # `torch.repeat_interleave` wakes PyTorch's threads: 4 ms on busy cores, for every window.
        which = b"".join(number.to_bytes(4, "little") * count for number, count in enumerate(self._counts))
        self.shapes = torch.frombuffer(bytearray(b"".join(records) or bytes(_SHAPE.size)), dtype=torch.uint8).to(device)
        self.which = torch.frombuffer(bytearray(which or bytes(4)), dtype=torch.int32).to(device)

    def of(self, outline: Mapping[str, torch.Tensor]) -> "Sampling":
        """Return the sampling of `outline`: the same object if all paths, shapes and dtypes are unchanged."""
        return self if _described(outline) == self._described else Sampling(outline, self._device)

    def positions(self) -> torch.Tensor:
        """Draw the flat positions of one call: all of a small tensor, some of a large tensor.

        A separate generator: the runner learns the seed of the default generator, for random numbers in forward.
        """
        generator = torch.Generator(self._device).manual_seed(secrets.randbits(63))
        drawn = [
            torch.arange(size, device=self._device)
            if count == size
            else torch.randint(size, (count,), device=self._device, generator=generator)
            for size, count in zip(self._sizes, self._counts, strict=True)
        ]
        return torch.cat(drawn) if drawn else torch.empty(0, dtype=torch.int64, device=self._device)

    def samples(self, positions: torch.Tensor, slots: torch.Tensor) -> dict[str, OutputSample]:
        """Return by path the elements that the kernel copied from `positions` to `slots`."""
        parts = zip(
            self.paths,
            self._item_bytes,
            torch.split(positions, self._counts),
            torch.split(slots, self._counts),
            strict=True,
        )
        return {path: OutputSample(indices, content[:, :item_bytes]) for path, item_bytes, indices, content in parts}


def shares(sizes: Sequence[int]) -> list[int]:
    """Distribute `SAMPLES` evenly among tensors of the given sizes; larger tensors get unused shares.

    >>> shares([4, 10**6]), shares([10**6] * 2)
    ([4, 16380], [8192, 8192])
    """
    counts = [0] * len(sizes)
    unused = SAMPLES
    for handled, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        counts[index] = min(sizes[index], unused // (len(sizes) - handled))
        unused -= counts[index]
    return counts


def _described(outline: Mapping[str, torch.Tensor]) -> list[tuple[str, tuple[int, ...], torch.dtype]]:
    return [(path, tuple(tensor.shape), tensor.dtype) for path, tensor in outline.items()]


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
