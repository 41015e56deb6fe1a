"""Scalar conditions in masks of Triton's interpreter.

The result of a comparison carries the type of its operands in the interpreter (Triton 3.9). A scalar one, spread over
a block, therefore becomes a block of integers, and `tl.load` refuses the mask `(offsets < n) & (row < rows)` with "mask
has unsupported dtype". A GPU accepts the mask.
"""

from typing import Any

import numpy as np


def install_scalar_masks(interpreter: Any) -> None:
    """Spread truth values as truth values in Triton's interpreter. Other versions stay unchanged."""
    builder: Any = type(getattr(interpreter, "interpreter_builder", None))
    if not hasattr(builder, "create_splat") or not hasattr(interpreter, "TensorHandle"):
        return
    spread, handle, of_one_bit = builder.create_splat, interpreter.TensorHandle, interpreter.tl.int1

    def create_splat(self: Any, to: Any, scalar: Any) -> Any:
        is_condition = isinstance(scalar.data, np.ndarray) and scalar.data.dtype == np.bool_
        return spread(self, to, handle(scalar.data, of_one_bit) if is_condition else scalar)

    builder.create_splat = create_splat
