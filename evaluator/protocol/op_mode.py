"""Seeing what PyTorch does below a piece of Python code, operation by operation."""

import functools
import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class OperationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that does not bring in PyTorch's compiler, and is kept apart from it where somebody else did.

    PyTorch wraps `__torch_dispatch__` of every mode, so that nothing in it is compiled, and imports the compiler for
    that: 0.7 s of a grade on two cores (docs/evidence/grade_speed_h200.md). Where it is not there, nothing can be
    compiled.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Have PyTorch leave `__torch_dispatch__` as it is."""
        return False

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap it, as PyTorch does, for when there is a compiler."""
        super().__init_subclass__(**options)  # type: ignore[no-untyped-call]
        plain = cls.__dict__["__torch_dispatch__"]
        apart = torch._disable_dynamo(plain)  # type: ignore[attr-defined]  # noqa: SLF001

        @functools.wraps(plain)
        def either(*args: Any, **options: Any) -> Any:
            return (apart if "torch._dynamo" in sys.modules else plain)(*args, **options)

        cls.__torch_dispatch__ = either  # type: ignore[method-assign]
