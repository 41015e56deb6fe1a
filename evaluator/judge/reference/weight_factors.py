"""Factors of changing weights, for single parameters and for groups of small parameters.

A model of hundreds of small parameters would take a dozen operations of PyTorch for each: tens of milliseconds before
every call, nearly all for launches. The parameters of a group are computed as a single vector, by the same operations
on the same numbers: the weights of a seed do not depend on the groups.
"""

import enum
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from evaluator.judge.reference.derived_seeds import derived

_WHOLE = (0.15, 0.25)
"""Range of a parameter's overall relative change, up or down. An average over many elements does not hide the
change."""
_EACH = 0.1
"""Limit of an element's additional relative change, up or down: normalisation does not remove the change. Below
`_WHOLE`, so every element changes."""
_FROM_ZERO = 0.1
_FLIPPED_ABOVE = 1.4
"""An element changes sign if its two random values have a sum above this limit in magnitude: 9 % of elements."""
_GROUPED = 1 << 18
"""Elements of the largest parameter in a group. Beyond, an operation takes longer on a GPU than the launch."""
_GROUP = 1 << 20
"""Elements of a group: temporaries take 30 MiB at most."""


class ChangeKind(enum.Enum):
    """Kind of a parameter's change from call to call."""

    FROM_ZERO = enum.auto()
    WITH_SIGNS = enum.auto()
    KEEPS_SIGNS = enum.auto()


class Draw(NamedTuple):
    """Random numbers of a parameter: the overall `level`, and the starts of both sequences of random values."""

    level: float
    start: int
    other_start: int


class Group(NamedTuple):
    """Small parameters of equal dtype and kind of change, as a single vector; `owners` has each element's parameter."""

    change: ChangeKind
    names: list[str]
    shapes: list[torch.Size]
    first: torch.Tensor
    owners: torch.Tensor


def draw(change: ChangeKind, seed: int) -> Draw:
    """Return the numbers of a parameter in the call for which the parameter has `seed`."""
    part = _WHOLE[0] + (_WHOLE[1] - _WHOLE[0]) * (seed >> 8 & 0xFFFF) / 0xFFFF
    whole = 1 + (part if seed & 1 else -part)
    level = math.copysign(_FROM_ZERO, whole - 1) if change is ChangeKind.FROM_ZERO else whole
    return Draw(level, seed >> 24, derived(seed, b"other place"))


def changed(change: ChangeKind, first: torch.Tensor, period: torch.Tensor, drawn: Draw) -> torch.Tensor:
    """Return a parameter with the constructed values `first`, changed by the random values of `period`.

    Factors repeat with the period of the random values, and are computed for a single period.
    """
    count = min(first.numel(), period.numel())
    noise, other = (_joined(spread(period, count, start)) for start in (drawn.start, drawn.other_start))
    factors = _factors(change, noise, other, drawn.level)
    return _applied(change, first, _repeated(factors, first.numel()).view(first.shape))


def changed_group(group: Group, period: torch.Tensor, drawn: Sequence[Draw]) -> list[torch.Tensor]:
    """Return the changed parameters of a group, each with own numbers of `drawn`."""
    counts = [shape.numel() for shape in group.shapes]
    pairs = list(zip(counts, drawn, strict=True))
    noise = torch.cat([part for count, one_draw in pairs for part in spread(period, count, one_draw.start)])
    other = torch.cat([part for count, one_draw in pairs for part in spread(period, count, one_draw.other_start)])
    levels = noise.new_zeros(len(drawn))
    # A tensor of Python's numbers would be copied to the GPU, and the host would wait for all queued work.
    torch._foreach_add_(levels.unbind(), [one_draw.level for one_draw in drawn])
    factors = _factors(group.change, noise, other, levels.index_select(0, group.owners))
    values = torch.split(_applied(group.change, group.first, factors), counts)
    return [value.view(shape) for value, shape in zip(values, group.shapes, strict=True)]


def groups_of(parameters: Mapping[str, torch.Tensor], changes: Mapping[str, ChangeKind], period: int) -> list[Group]:
    """Return groups of the small parameters. A parameter alone of its kind, or longer than `period`, is left out."""
    alike: dict[tuple[torch.dtype, ChangeKind], list[dict[str, torch.Tensor]]] = {}
    elements: dict[tuple[torch.dtype, ChangeKind], int] = {}
    for name, first in parameters.items():
        if first.numel() > min(_GROUPED, period):
            continue
        kind = first.dtype, changes[name]
        lists = alike.setdefault(kind, [{}])
        elements[kind] = elements.get(kind, 0) + first.numel()
        if elements[kind] > _GROUP:
            lists.append({})
            elements[kind] = first.numel()
        lists[-1][name] = first
    return [_group(change, members) for (_, change), lists in alike.items() for members in lists if len(members) > 1]


def _group(change: ChangeKind, members: Mapping[str, torch.Tensor]) -> Group:
    first = torch.cat([tensor.reshape(-1) for tensor in members.values()])
    counts = torch.tensor([tensor.numel() for tensor in members.values()])
    owners = torch.repeat_interleave(torch.arange(len(counts), dtype=torch.int32), counts).to(first.device)
    return Group(change, list(members), [tensor.shape for tensor in members.values()], first, owners)


def spread(period: torch.Tensor, count: int, start: int) -> list[torch.Tensor]:
    """Return `count` random values from position `start`, cyclically, at most a period, in at most two parts."""
    start %= period.numel()
    head = period[start : start + count]
    missing = count - head.numel()
    return [head, period[:missing]] if missing else [head]


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _factors(change: ChangeKind, noise: torch.Tensor, other: torch.Tensor, level: float | torch.Tensor) -> torch.Tensor:
    """Return the factors of elements, or new values of zeros. Each combines random values of two positions."""
    signed_noise = noise * other.sign()
    match change:
        case ChangeKind.FROM_ZERO:
            return signed_noise * (_FROM_ZERO / 2) + level
        case ChangeKind.WITH_SIGNS:
            factors = signed_noise * _EACH + level
            return torch.where((noise + other).abs() > _FLIPPED_ABOVE, -factors, factors)
        case ChangeKind.KEEPS_SIGNS:
            return signed_noise * _EACH + level


def _applied(change: ChangeKind, first: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    if change is ChangeKind.FROM_ZERO:
        return factors.to(first.dtype)
    wide = torch.promote_types(first.dtype, torch.float32)
    return (first.to(wide) * factors).to(first.dtype)


def _repeated(period: torch.Tensor, count: int) -> torch.Tensor:
    """Return `count` values that repeat the values of `period`."""
    whole, rest = divmod(count, period.numel())
    return period if count == period.numel() else torch.cat([*[period] * whole, period[:rest]])
