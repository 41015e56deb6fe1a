"""PyTorch's settings and functions in a judge: whether a problem's code has changed any.

A judge may set up several problems in turn. The author of a problem is trusted, and may still change a default dtype or
replace a function of PyTorch: the next problem must not compute with either.
"""

from typing import NamedTuple

import torch
from torch.nn import functional

_NAMESPACES = (torch, torch.Tensor, torch.nn, torch.nn.Module, functional, torch.linalg, torch.special, torch.fft)


class TorchState(NamedTuple):
    """Settings of PyTorch, and the objects behind the names of its modules."""

    settings: tuple[object, ...]
    names: tuple[dict[str, object], ...]

    @classmethod
    def now(cls) -> "TorchState":
        """Return the present state."""
        cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
        settings = (
            torch.get_default_dtype(),
            torch.get_default_device(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_float32_matmul_precision(),
            torch.is_grad_enabled(),
            torch.get_num_threads(),
            (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32),
            (matmul.allow_tf32, matmul.allow_fp16_reduced_precision_reduction),
            matmul.allow_bf16_reduced_precision_reduction,
        )
        return cls(settings, tuple(dict(vars(namespace)) for namespace in _NAMESPACES))

    def is_as(self, earlier: "TorchState") -> bool:
        """Return whether nothing has changed since `earlier`. New names, as of late imports, are no change."""
        return self.settings == earlier.settings and all(
            now.get(name) is value
            for before, now in zip(earlier.names, self.names, strict=True)
            for name, value in before.items()
        )
