"""Dispatch mode that exaggerates the fp32 roundings of a reference, and leaves exact results alone.

A result is exact if float64 gives the same number from the same arguments: a maximum, a selection, a count, a sum of
small whole numbers. No kernel may change an exact result. Each other result of an operation on fp32 is moved: by units
in the last place, or away from the plain result in the direction of another order of summation. Results of other
dtypes, of operations without fp32 arguments, and of `out=` variants stay.

Equal values move equally. A draw decides by the bits of a value or of a whole result, not by the place: a value that
the reference compares with a maximum of values stays equal to the maximum, and equal elements of an argmax stay equal.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from evaluator.judge.numerics.arithmetic_modes import Order, in_order
from evaluator.judge.numerics.composites import COMPOSITES, WrittenOut
from evaluator.protocol.op_mode import OperationMode

aten = torch.ops.aten

_COPIES = frozenset({aten._to_copy, aten.copy, aten.copy_, aten.clone})  # noqa: SLF001
"""Casts of a reference are asked of every kernel."""
_BY_CHANCE = 4096
"""A few quotients are exact by chance, and a kernel that multiplies by the reciprocal changes them. If fewer than one
element in 4096 is exact, none counts as exact. Of counts and selections all are."""
_SEEDS = 1 << 20
_MIXERS = (0x2545F4914F6CDD1D, 0x1B873593CC9E2D51)
"""Odd factors of a multiplicative hash (Knuth, The Art of Computer Programming, 6.4)."""


@contextlib.contextmanager
def exaggerated(order: Order, factor: float, draw: int) -> Iterator[None]:
    """Context in which each inexact result is `factor` times as far from the plain result as in `order`.

    With `Order.ROUNDED`, `factor` counts units in the last place. A negative `factor` moves results in the opposite
    direction. Each `draw` has other roundings.
    """
    with sdpa_kernel(SDPBackend.MATH), _Exaggerated(order, factor, draw):
        yield


class _Exaggerated(OperationMode):
    def __init__(self, order: Order, factor: float, draw: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._order = order
        self._factor = factor
        self._draw = draw
        self._written_out = WrittenOut(COMPOSITES)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        given = dict(kwargs or {})
        if self._written_out.has(func):
            with self:
                return self._written_out.run(func, args, given)
        if (functional := _functional(func)) is not None and _is_fp32(args[0]):
            with self:
                result = functional(*args, **given)
            if result.shape == args[0].shape:
                return args[0].copy_(result)
        plain = func(*args, **given)
        if _stays(func, args, given):
            return plain
        if self._order is Order.ROUNDED:
            other = pytree.tree_map(self._moved, plain)
        else:
            with in_order(self._order, self._draw * _SEEDS + _seed_of(plain)):
                other = func(*args, **given)
        if _are_equal(plain, other):
            return plain
        return pytree.tree_map(self._further, plain, other, _in_float64(func, args, given, plain))

    def _moved(self, plain: Any) -> Any:
        """Return values up or down by a unit in the last place, as the draw decides by the bits of each value."""
        if not _is_fp32(plain):
            return plain
        bits = plain.contiguous().view(torch.int32).long() + self._draw
        for mixer in _MIXERS:
            bits = (bits ^ (bits >> 29)) * mixer
        step = torch.finfo(plain.dtype).eps
        return torch.where((bits >> 47) & 1 == 0, plain * (1 + step), plain * (1 - step))

    def _further(self, plain: Any, other: Any, exact: Any) -> Any:
        if not _is_fp32(plain) or plain.shape != other.shape:
            return plain
        moved = plain + self._factor * (other - plain)
        stays = ~torch.isfinite(moved)
        if isinstance(exact, torch.Tensor):
            is_exact = exact == plain
            by_chance = int(is_exact.sum()) * _BY_CHANCE < is_exact.numel()
            stays |= is_exact & (not by_chance)
        return torch.where(stays, plain, moved)


def _is_fp32(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and value.dtype == torch.float32


def _functional(func: Any) -> Any:
    """Return the operation that returns what `func` writes into its first argument; None for other operations."""
    name = func.overloadpacket.__name__
    if not name.endswith("_") or func.overloadpacket in _COPIES or torch.Tag.nondeterministic_seeded in func.tags:
        return None
    found = getattr(getattr(aten, name[:-1], None), func._overloadname, None)  # noqa: SLF001
    return None if found is None or _is_view(found) else found


def _is_view(func: Any) -> bool:
    return any(each.alias_info is not None for each in func._schema.returns)  # noqa: SLF001


def _are_equal(plain: Any, other: Any) -> bool:
    pairs = zip(pytree.tree_leaves(plain), pytree.tree_leaves(other), strict=True)
    return all(torch.equal(one, two) for one, two in pairs if _is_fp32(one))


def _stays(func: Any, args: Sequence[Any], given: Mapping[str, Any]) -> bool:
    """Return whether an operation rounds nothing, or must not run twice: it writes, or draws random numbers."""
    return (
        func.overloadpacket in _COPIES
        or func._schema.is_mutable  # noqa: SLF001
        or _is_view(func)
        or torch.Tag.nondeterministic_seeded in func.tags
        or not any(map(_is_fp32, pytree.tree_leaves([args, given])))
    )


def _in_float64(func: Any, args: Sequence[Any], given: Mapping[str, Any], plain: Any) -> Any:
    """Return the operation's result in float64, in the structure of `plain`; None for each part without."""
    try:
        return func(*pytree.tree_map(_widened, list(args)), **pytree.tree_map(_widened, dict(given)))
    except (RuntimeError, TypeError):  # An operation without float64.
        return pytree.tree_map(lambda _: None, plain)


def _widened(leaf: Any) -> Any:
    """Return an argument in float64. PyTorch rounds a Python number to fp32, the dtype of the tensors."""
    if _is_fp32(leaf):
        return leaf.double()
    if leaf is torch.float32:
        return torch.float64
    return float(torch.tensor(leaf, dtype=torch.float32)) if isinstance(leaf, float) else leaf


def _seed_of(plain: Any) -> int:
    """Return a number that follows from the values of a result: equal results have equal roundings."""
    total = sum(leaf.double().nan_to_num().sum() for leaf in pytree.tree_leaves(plain) if _is_fp32(leaf))
    return int(torch.as_tensor(total, dtype=torch.float64).view(torch.int64)) % _SEEDS
