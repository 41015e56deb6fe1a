"""What forward or a constructor is called with, copied and looked at as a whole."""

from typing import NamedTuple

import torch

from evaluator.judge.tensors.pytree import Value, tensors
from evaluator.protocol.model_call import mapped


class Arguments(NamedTuple):
    """What forward or a constructor is called with."""

    args: list[Value]
    kwargs: dict[str, Value]


def versions(inputs: Arguments) -> list[int]:
    """Count how often each input has been written to; PyTorch does, for autograd."""
    return [tensor._version for tensor in tensors(list(inputs))]  # noqa: SLF001 - documented nowhere else, and stable


def storages(inputs: Arguments) -> set[int]:
    """Return where the memory of each input begins."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors(list(inputs)) if tensor.numel()}


def cloned(inputs: Arguments) -> Arguments:
    """Copy the inputs: a reference may write into them."""
    return Arguments(mapped(inputs.args, torch.clone), mapped(inputs.kwargs, torch.clone))


def widened(inputs: Arguments) -> Arguments:
    """Copy the inputs into float64 (complex128); integers and booleans as they are."""
    return Arguments(mapped(inputs.args, _double), mapped(inputs.kwargs, _double))


def wide(gradients: list[torch.Tensor] | None) -> list[torch.Tensor] | None:
    """Copy output gradients into float64."""
    return None if gradients is None else [gradient.double() for gradient in gradients]


def _double(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128, copy=True)
    return tensor.to(torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)
