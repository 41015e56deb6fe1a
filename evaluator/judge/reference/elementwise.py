"""Elementwise maps: references without sums. No order of summation excuses an error."""

import functools
from typing import Any

import torch

from evaluator.protocol.op_mode import OperationMode

aten = torch.ops.aten
_UNTAGGED = frozenset({aten.hardswish, aten.hardswish_, aten.log_sigmoid_forward, aten._prelu_kernel, aten.glu})  # noqa: SLF001
"""Elementwise operations without PyTorch's tag."""
_MOVING = frozenset({aten._to_copy, aten.copy_, aten.cat, aten.stack, aten.fill_, aten.zero_})  # noqa: SLF001
_CREATING = frozenset({
    aten.arange, aten.empty, aten.empty_like, aten.full, aten.full_like, aten.ones, aten.ones_like, aten.scalar_tensor,
    aten.zeros, aten.zeros_like,
})  # fmt: skip
_KNOWN = _UNTAGGED | _MOVING | _CREATING


class ElementwiseCheck(OperationMode):
    """Dispatch mode that observes whether every operation is elementwise, or only moves or creates values.

    Elementwise operations have PyTorch's tag `pointwise`. Unknown operations count as sums.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.holds = True
        """Whether all operations so far are elementwise."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at an operation, and run it."""
        self.holds = self.holds and _adds_nothing_up(func)
        return func(*args, **(kwargs or {}))


@functools.cache
def _adds_nothing_up(func: Any) -> bool:
    """Return whether an operation is elementwise, or moves or creates values. In-place forms may lack the tag."""
    packet = func.overloadpacket
    plain = getattr(aten, packet.__name__.removesuffix("_"), packet)
    forms = (func, getattr(plain, func._overloadname, func))  # noqa: SLF001
    return func.is_view or packet in _KNOWN or any(torch.Tag.pointwise in form.tags for form in forms)
