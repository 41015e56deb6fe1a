"""Which elements of an answer are looked at inside the clock on a GPU: some of every tensor, drawn anew for each call.

The kernel that looks (`native/gather.cu`) is told shapes by the judge, and places by the runner (`devices/page.py`).
"""

import secrets
import struct
from collections.abc import Mapping, Sequence

import torch

from evaluator.devices.memory import MAX_DIMENSIONS
from evaluator.devices.page import MAX_PLACES
from evaluator.errors import ProblemError
from evaluator.judge.clock.clock import Sample

SAMPLES = 16_384
"""Elements looked at inside of the clock. If a thousandth of an output came late, they would miss it once in 10**7."""
SLOT_BYTES = 16
"""The largest element, complex128."""
_SHAPE = struct.Struct(f"<II{MAX_DIMENSIONS}q")


class Sampling:
    """What the gather kernel is told of the tensors of `outline`: their shapes, and for each sample whose it is.

    A tensor without elements has nothing to look at.
    """

    def __init__(self, outline: Mapping[str, torch.Tensor], device: str) -> None:
        """Share the samples out. Raises ProblemError for more tensors than the page has places for."""
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
        which = torch.repeat_interleave(torch.arange(len(chosen)), torch.tensor(self._counts, dtype=torch.int64))
        self.shapes = torch.frombuffer(bytearray(b"".join(records) or bytes(_SHAPE.size)), dtype=torch.uint8).to(device)
        self.which = which.to(device, torch.int32)

    def of(self, outline: Mapping[str, torch.Tensor]) -> "Sampling":
        """Return the sampling of `outline`: this one where nothing about the tensors is new."""
        return self if _described(outline) == self._described else Sampling(outline, self._device)

    def positions(self) -> torch.Tensor:
        """Draw the flat positions of one call: all of a small tensor, some of a large one.

        By a generator of their own: the seed of the default one is told to the runner for random numbers in forward.
        """
        generator = torch.Generator(self._device).manual_seed(secrets.randbits(63))
        drawn = [
            torch.arange(size, device=self._device)
            if count == size
            else torch.randint(size, (count,), device=self._device, generator=generator)
            for size, count in zip(self._sizes, self._counts, strict=True)
        ]
        return torch.cat(drawn) if drawn else torch.empty(0, dtype=torch.int64, device=self._device)

    def samples(self, positions: torch.Tensor, slots: torch.Tensor) -> dict[str, Sample]:
        """Return by path what the kernel found at `positions` and wrote into `slots`."""
        parts = zip(
            self.paths,
            self._item_bytes,
            torch.split(positions, self._counts),
            torch.split(slots, self._counts),
            strict=True,
        )
        return {path: Sample(where, content[:, :item_bytes]) for path, item_bytes, where, content in parts}


def shares(sizes: Sequence[int]) -> list[int]:
    """Share `SAMPLES` out among tensors of so many elements: evenly, and what small ones leave goes to the others.

    >>> shares([4, 10**6]), shares([10**6] * 2)
    ([4, 16380], [8192, 8192])
    """
    counts = [0] * len(sizes)
    left = SAMPLES
    for done, index in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        counts[index] = min(sizes[index], left // (len(sizes) - done))
        left -= counts[index]
    return counts


def _described(outline: Mapping[str, torch.Tensor]) -> list[tuple[str, tuple[int, ...], torch.dtype]]:
    return [(path, tuple(tensor.shape), tensor.dtype) for path, tensor in outline.items()]
