"""Output sampling on a GPU: random elements of every output tensor, read inside the timed interval.

Positions are drawn for each call. The gather kernel (`native/gather.cu`) gets the shapes from the judge and the
locations from the runner (`devices/page.py`).
"""

import secrets
import struct
from collections.abc import Mapping, Sequence

import torch

from evaluator.devices.memory import MAX_DIMENSIONS
from evaluator.devices.page import MAX_PLACES
from evaluator.errors import ProblemError
from evaluator.judge.clock.clock import OutputSample

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
