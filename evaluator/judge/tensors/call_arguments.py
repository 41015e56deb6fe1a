"""Arguments of forward or of a constructor: copies, write counters and storages."""

from typing import NamedTuple

import torch

from evaluator.judge.tensors.number_formats import are_equal as same_values
from evaluator.judge.tensors.number_formats import format_of
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import mapped, tensors_of


class Arguments(NamedTuple):
    """Arguments of forward or of a constructor."""

    args: list[Value]
    kwargs: dict[str, Value]


def versions(inputs: Arguments) -> list[int]:
    """Return the number of writes to each input, from PyTorch's counter for autograd."""
    return [tensor._version for tensor in tensors_of(list(inputs))]  # noqa: SLF001 - documented nowhere else, and stable


def storages(inputs: Arguments) -> set[int]:
    """Return the start addresses of the inputs' memory."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors_of(list(inputs)) if tensor.numel()}


def are_equal(inputs: Arguments, others: Arguments) -> bool:
    """Return whether two calls have equal tensors, one at least."""
    left, right = (tensors_of([call.args, call.kwargs]) for call in (inputs, others))
    return len(left) == len(right) > 0 and all(same_values(one, same) for one, same in zip(left, right, strict=True))


def cloned(inputs: Arguments) -> Arguments:
    """Return copies of the inputs, since a reference may write into inputs."""
    return Arguments(mapped(inputs.args, torch.clone), mapped(inputs.kwargs, torch.clone))


def widened(inputs: Arguments) -> Arguments:
    """Copy the inputs into float64 (complex128); integers, booleans and codes in fp8 as they are."""
    return Arguments(mapped(inputs.args, _double), mapped(inputs.kwargs, _double))


def wide(gradients: list[torch.Tensor] | None) -> list[torch.Tensor] | None:
    """Copy output gradients into float64."""
    return None if gradients is None else [gradient.double() for gradient in gradients]


def _double(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128, copy=True)
    if format_of(tensor.dtype) is not None:
        return tensor.clone()
    return tensor.to(torch.float64 if tensor.is_floating_point() else tensor.dtype, copy=True)
