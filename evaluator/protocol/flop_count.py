"""Floating-point operations of one PyTorch operation, by the formulas of `torch.utils.flop_counter`.

`FlopCounterMode` itself imports PyTorch's compiler, for more than a second of a problem's first grade (`op_mode.py`).
"""

from collections.abc import Mapping
from typing import Any

from torch.utils.flop_counter import flop_registry


def flop_of(operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> int:
    """Return the FLOP of a matrix product, a convolution or attention, 0 for other operations.

    A multiplication and an addition are two. `operation` is the overload that a dispatch mode receives.
    """
    formula = flop_registry.get(getattr(operation, "overloadpacket", None))
    return 0 if formula is None else int(formula(*args, **kwargs, out_val=result))
