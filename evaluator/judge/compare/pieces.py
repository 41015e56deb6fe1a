"""Two outputs in pieces, for comparisons with small temporaries."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

_PIECE = 1 << 22
"""Elements compared at once: the temporaries of `torch.isclose` take 100 MiB in fp32."""


class Piece(NamedTuple):
    """Equal parts of two outputs. `apart` has the uncounted slices, by dimension and index in the piece."""

    actual: torch.Tensor
    honest: torch.Tensor
    apart: list[tuple[int, int]]


def pieces(actual: torch.Tensor, honest: torch.Tensor, apart: Sequence[tuple[int, int]] = ()) -> Iterator[Piece]:
    """Yield outputs of equal shape in pieces along the longest dimension, at least one."""
    if not honest.dim():
        actual, honest = actual[None], honest[None]
    longest = max(range(honest.dim()), key=honest.shape.__getitem__)
    step = max(_PIECE * honest.shape[longest] // max(honest.numel(), 1), 1)
    halves = (torch.split(side, step, longest) for side in (actual, honest))
    for number, (one, other) in enumerate(zip(*halves, strict=True)):
        places = [(dim, index - number * step if dim == longest else index) for dim, index in apart]
        yield Piece(one, other, [(dim, place) for dim, place in places if 0 <= place < other.shape[dim]])
