"""Sampling of the input bytes that matter: change a few bytes and see whether the reference's output changes.

A program that is right for all inputs must read every location where a change of the input changes the output. Without
the read, both outputs would be equal. The fraction of random locations that change the output therefore estimates the
fraction of bytes that a call must read. A triangular product, a gather or a slice shows up in this fraction.

A location is a sector, the 32 bytes that a GPU reads from memory at once. A single changed value is invisible in an
average of millions, eight values are visible, and no program can read less. New values are the tensor's own largest,
then smallest value, so that inputs stay inside the reference's domain (a logarithm, a probability). Integers stay
unchanged: a wrong index ends the judge's context on a GPU.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from evaluator.records import Flips

SECTOR_BYTES = 32
SAMPLES = 128
"""If all samples matter, at least 95 % of the bytes do, except in one case in a thousand (`least_part`)."""
BUDGET_S = 4.0
"""Time limit for changing samples. Fewer samples prove less, never too much."""
_AGAIN = 2
_PIECE_ELEMENTS = 1 << 26
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool)


class Undetermined(NamedTuple):
    """Reason for the lack of a result: the reference returns different outputs for the same inputs."""

    reason: str


class _Field(NamedTuple):
    """A tensor to change: its whole storage as a row of elements, and the replacement values."""

    leaf: torch.Tensor
    row: torch.Tensor
    values: list[Any]


def changeable(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors whose values may be changed: dense, of floats or booleans, and not empty."""
    return [leaf for leaf in tensors if leaf.layout is torch.strided and leaf.dtype in _FLOATS and leaf.numel()]


def sample(
    answer: Callable[[], list[torch.Tensor]],
    tensors: Sequence[torch.Tensor],
    *,
    samples: int = SAMPLES,
    budget_s: float = BUDGET_S,
) -> Flips | Undetermined:
    """Change sectors of `tensors`, one at a time, and count how often the output of `answer` changes.

    `answer` must read `tensors` anew in every call, and not write to them. On return, `tensors` have their original
    values. A tensor is drawn with probability proportional to its bytes. Sampling stops early after `budget_s`.
    """
    fields = [_field(tensor) for tensor in changeable(tensors)]
    if not fields:
        return Flips(samples=0, mattered=0)
    expected = answer()
    if any(changed(expected, answer()) for _ in range(_AGAIN)):
        return Undetermined("the reference gives different answers to the same inputs")
    generator = torch.Generator().manual_seed(0)
    weights = torch.tensor([float(_unique_bytes(field.leaf)) for field in fields], dtype=torch.float64)
    deadline = time.monotonic() + budget_s
    drawn = mattered = 0
    while drawn < samples and (drawn == 0 or time.monotonic() < deadline):
        field = fields[int(torch.multinomial(weights, 1, generator=generator))]
        mattered += _matters(field, answer, expected, generator)
        drawn += 1
    # An occasional difference would have been attributed to a change.
    if changed(expected, answer()):
        return Undetermined("the reference gives different answers to the same inputs")
    return Flips(samples=drawn, mattered=mattered)


def changed(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> bool:
    """Return whether any value differs. NaN equals NaN, and zero equals its negative."""
    if [tensor.shape for tensor in before] != [tensor.shape for tensor in after]:
        return True
    return any(_differ(left, right) for left, right in zip(before, after, strict=True))


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    pieces = zip(*(torch.split(tensor.reshape(-1), _PIECE_ELEMENTS) for tensor in (one, other)), strict=True)
    return any(bool(((left != right) & ~(left.isnan() & right.isnan())).any()) for left, right in pieces)


def _field(leaf: torch.Tensor) -> _Field:
    leaf = leaf.detach()
    elements = leaf.untyped_storage().nbytes() // leaf.element_size()
    row = torch.empty(0, dtype=leaf.dtype, device=leaf.device).set_(leaf.untyped_storage(), 0, (elements,), (1,))
    if leaf.dtype is torch.bool:
        return _Field(leaf, row, [True, False])
    # A NaN would show in any output, and prove nothing.
    return _Field(leaf, row, [value for value in (leaf.amax(), leaf.amin()) if not value.isnan()])


def _unique_bytes(leaf: torch.Tensor) -> int:
    """Return a tensor's bytes without the repetitions of `expand`."""
    sizes = [size for size, stride in zip(leaf.shape, leaf.stride(), strict=True) if stride]
    return torch.Size(sizes).numel() * leaf.element_size()


def _matters(
    field: _Field,
    answer: Callable[[], list[torch.Tensor]],
    expected: list[torch.Tensor],
    generator: torch.Generator,
) -> bool:
    """Change a sector in every possible way until the output changes.

    A sector of zeros counts as irrelevant: its place may be the empty half of a triangle, skipped by programs for
    triangular matrices.
    """
    sector = _sector(field, generator)
    before = sector.clone()
    if not bool(before.any()):
        return False
    try:
        for value in field.values:
            sector.fill_(value)
            if changed(expected, answer()):
                return True
        return False
    finally:
        sector.copy_(before)


def _sector(field: _Field, generator: torch.Generator) -> torch.Tensor:
    """Draw an element of the tensor and return the sector around it."""
    offset = field.leaf.storage_offset()
    for size, stride in zip(field.leaf.shape, field.leaf.stride(), strict=True):
        offset += int(torch.randint(size, (1,), generator=generator)) * stride
    elements = SECTOR_BYTES // field.leaf.element_size()
    first = offset // elements * elements
    return field.row[first : first + elements]
