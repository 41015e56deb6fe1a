"""Tensors that a problem's code makes: `cuda` means the device of use, and only dense tensors can be judged."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from evaluator.errors import ProblemError
from evaluator.protocol.pytree import tensors_of


class CudaMeans(TorchFunctionMode):
    """Context in which `device="cuda"` and `.cuda()` mean another device: a problem's file may name a GPU."""

    def __init__(self, device: torch.device) -> None:
        """Map `cuda` to `device`."""
        super().__init__()
        self._device = device

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call `func` on the device of use."""
        if func is torch.Tensor.cuda:
            return args[0].to(self._device)
        if func is torch.device:  # The construction of a device keeps its name.
            return func(*args, **(kwargs or {}))
        return func(*map(self._mapped, args), **{name: self._mapped(each) for name, each in (kwargs or {}).items()})

    def _mapped(self, value: Any) -> Any:
        is_cuda = isinstance(value, torch.device) and value.type == "cuda"
        is_named = isinstance(value, str) and value.partition(":")[0] == "cuda"
        return self._device if is_cuda or is_named else value


def refuse_other_layouts(name: str, value: Any, source: str) -> None:
    """Raise ProblemError if `value`, which `source` returned in the problem `name`, has a tensor that is not dense."""
    for tensor in tensors_of(value):
        if tensor.is_nested or tensor.layout is not torch.strided or tensor.is_quantized:
            kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else "sparse"
            raise ProblemError(
                f"{name}: {source} returns a {kind} tensor, which no grade can compare or hand over",
                hint="give its parts as dense tensors: values and indices, or values and offsets",
            )
