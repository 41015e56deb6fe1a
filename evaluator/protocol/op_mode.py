"""Dispatch mode that observes PyTorch operations below a piece of Python code."""

import functools
import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class OperationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that does not import PyTorch's compiler, and excludes itself from a loaded compiler.

    PyTorch wraps `__torch_dispatch__` of every mode to exclude the method from compilation. The wrapper imports the
    compiler: 0.7 s of a grade on two cores (docs/measured.md). Without a loaded compiler, no code can be compiled.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from wrapping `__torch_dispatch__`."""
        return False

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap `__torch_dispatch__` as PyTorch does, for calls after the compiler is loaded."""
        super().__init_subclass__(**options)  # type: ignore[no-untyped-call]
        plain = cls.__dict__["__torch_dispatch__"]
        apart = torch._disable_dynamo(plain)  # type: ignore[attr-defined]  # noqa: SLF001

        @functools.wraps(plain)
        def either(*args: Any, **options: Any) -> Any:
            return (apart if "torch._dynamo" in sys.modules else plain)(*args, **options)

        cls.__torch_dispatch__ = either  # type: ignore[method-assign]
