"""Dispatch mode that exaggerates the roundings of a reference: other orders of summation, and perturbed results."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from evaluator.judge.formats.elements import format_of
from evaluator.judge.numerics.arithmetic_modes import Order, in_order
from evaluator.judge.numerics.single_accumulator import LongSum
from evaluator.protocol.op_mode import OperationMode

_MOST_OPERATIONS = 1 << 20
"""Operations of a run with separate draws."""


@contextlib.contextmanager
def exaggerated(order: Order | LongSum, factor: float, draw: int) -> Iterator[None]:
    """Context in which each operation's result is `factor` times as far from the plain result as in `order`.

    Each `draw` has other random roundings.
    """
    with sdpa_kernel(SDPBackend.MATH), _Exaggerated(order, factor, draw):
        yield


class _Exaggerated(OperationMode):
    def __init__(self, order: Order | LongSum, factor: float, draw: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._order = order
        self._factor = factor
        self._draws = itertools.count(draw * _MOST_OPERATIONS)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        given = dict(kwargs or {})
        # A second run of the operation would write twice, or draw other numbers.
        once = func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags  # noqa: SLF001
        plain = func(*args, **given)
        if once:
            return plain
        with in_order(self._order, next(self._draws)):
            other = func(*args, **given)
        return self._further(plain, other)

    def _further(self, plain: Any, other: Any) -> Any:
        if isinstance(plain, torch.Tensor):
            return self._further_tensor(plain, other)
        if type(plain) in (tuple, list):
            return type(plain)(self._further(*pair) for pair in zip(plain, other, strict=True))
        return plain

    def _further_tensor(self, plain: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        if plain is other or not plain.is_floating_point() or format_of(plain.dtype) is not None:
            return plain
        is_view = plain.numel() > 0 and plain.data_ptr() == other.data_ptr()
        if is_view or plain.shape != other.shape or plain.dtype != other.dtype:
            return plain
        wide = plain.double() if plain.dtype == torch.float64 else plain.float()
        moved = (wide + self._factor * (other.to(wide.dtype) - wide)).to(plain.dtype)
        return torch.where(torch.isfinite(moved), moved, plain)
