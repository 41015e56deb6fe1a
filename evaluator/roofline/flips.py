"""How much of what a reference is given matters: change a little of it, and see whether its answer changes.

A program that is right whatever its inputs must read every place where a change of the inputs changes the answer: had
it not looked there, it would have answered the same to both. So the part of the places, drawn at random, that change
the answer says which part of the bytes a call must read. A triangular product, a gather or a slice shows in it.

A place is a sector, the 32 bytes that a GPU reads from memory at once: one changed value is not seen where millions
are averaged, eight are, and no program can read less. Values are changed to ones that the same tensor holds elsewhere
(its largest, then its smallest), so that a reference with a domain (a logarithm, a probability) stays inside of it.
Integers are left alone: they may be indices, and a wrong index ends the judge's own context on a GPU.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from evaluator.records import Flips

SECTOR_BYTES = 32
SAMPLES = 128
"""With all of them mattering, at least 95 % of the bytes do, but for one case in a thousand (`least_part`)."""
BUDGET_S = 4.0
"""How long changing samples may take. Fewer of them prove less, never too much."""
_AGAIN = 2
_PIECE_ELEMENTS = 1 << 26
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool)


class Undetermined(NamedTuple):
    """Why nothing can be said: a reference that answers differently to the same inputs."""

    reason: str


class _Field(NamedTuple):
    """A tensor whose values are changed: its whole storage as a row of elements, and what they are changed to."""

    leaf: torch.Tensor
    row: torch.Tensor
    values: list[Any]


def changeable(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """List the tensors whose values may be changed: dense, of floats or booleans, and not empty."""
    return [each for each in tensors if each.layout is torch.strided and each.dtype in _FLOATS and each.numel()]


def sample(
    answer: Callable[[], list[torch.Tensor]],
    tensors: Sequence[torch.Tensor],
    *,
    samples: int = SAMPLES,
    budget_s: float = BUDGET_S,
) -> Flips | Undetermined:
    """Change sectors of `tensors`, one at a time, and count how often what `answer` gives changes.

    `answer` must read `tensors` anew in every call, and not write to them. They are as they were when this returns.
    Tensors are drawn by their bytes. Fewer samples are taken where `budget_s` runs out.
    """
    fields = [_field(each) for each in changeable(tensors)]
    if not fields:
        return Flips(samples=0, mattered=0)
    expected = answer()
    if any(changed(expected, answer()) for _ in range(_AGAIN)):
        return Undetermined("the reference gives different answers to the same inputs")
    generator = torch.Generator().manual_seed(0)
    weights = torch.tensor([float(_unique_bytes(field.leaf)) for field in fields], dtype=torch.float64)
    deadline = time.monotonic() + budget_s
    taken = mattered = 0
    while taken < samples and (taken == 0 or time.monotonic() < deadline):
        field = fields[int(torch.multinomial(weights, 1, generator=generator))]
        mattered += _matters(field, answer, expected, generator)
        taken += 1
    # What happens only now and then would have been taken for the work of a change.
    if changed(expected, answer()):
        return Undetermined("the reference gives different answers to the same inputs")
    return Flips(samples=taken, mattered=mattered)


def changed(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> bool:
    """Say whether any value differs. NaN is no different from NaN, nor zero from its negative."""
    if [each.shape for each in before] != [each.shape for each in after]:
        return True
    return any(_differ(one, other) for one, other in zip(before, after, strict=True))


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    pieces = zip(*(torch.split(each.reshape(-1), _PIECE_ELEMENTS) for each in (one, other)), strict=True)
    return any(bool(((left != right) & ~(left.isnan() & right.isnan())).any()) for left, right in pieces)


def _field(leaf: torch.Tensor) -> _Field:
    leaf = leaf.detach()
    elements = leaf.untyped_storage().nbytes() // leaf.element_size()
    row = torch.empty(0, dtype=leaf.dtype, device=leaf.device).set_(leaf.untyped_storage(), 0, (elements,), (1,))
    if leaf.dtype is torch.bool:
        return _Field(leaf, row, [True, False])
    # A NaN would show in any answer, and prove nothing.
    return _Field(leaf, row, [value for value in (leaf.amax(), leaf.amin()) if not value.isnan()])


def _unique_bytes(leaf: torch.Tensor) -> int:
    """Count a tensor's bytes without what `expand` repeats."""
    sizes = [size for size, stride in zip(leaf.shape, leaf.stride(), strict=True) if stride]
    return torch.Size(sizes).numel() * leaf.element_size()


def _matters(
    field: _Field,
    answer: Callable[[], list[torch.Tensor]],
    expected: list[torch.Tensor],
    generator: torch.Generator,
) -> bool:
    """Change one sector in each way that there is, until the answer changes.

    One that holds nothing but zeros is taken not to matter: it may be the empty half of a triangle, which a program
    that was written for triangles leaves out.
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
    """Draw an element of the tensor, and give the sector that it lies in."""
    offset = field.leaf.storage_offset()
    for size, stride in zip(field.leaf.shape, field.leaf.stride(), strict=True):
        offset += int(torch.randint(size, (1,), generator=generator)) * stride
    elements = SECTOR_BYTES // field.leaf.element_size()
    first = offset // elements * elements
    return field.row[first : first + elements]
