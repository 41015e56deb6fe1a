"""Declared formats of a problem, matched with the tensors of its inputs and outputs."""

import inspect
from collections.abc import Iterator

import torch

from evaluator.errors import ProblemError
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.number_formats import block_elements, dtype_of, is_packed, scale_format
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import leaves, tensors_of
from evaluator.records import ElementFormat, Problem

_E8M0 = (torch.uint8, torch.float8_e8m0fnu)
"""PyTorch has a dtype for e8m0. Most code uses bytes."""


def input_forms(problem: Problem, model: torch.nn.Module, inputs: Arguments) -> dict[int, ElementFormat]:
    """Return the declared formats of input tensors, by number over all input tensors."""
    declared = problem.formats.inputs
    if not declared:
        return {}
    names = [name for name, value in _named(model, inputs) for _ in tensors_of(value)]
    return {number: declared[name] for number, name in enumerate(names) if name in declared}


def check_formats(problem: Problem, model: torch.nn.Module, inputs: Arguments, outputs: Value) -> None:
    """Check declared formats against the dtypes and shapes of a call.

    Raises:
        ProblemError: a declared input or output does not exist, or is no tensor of the format.
    """
    arguments = dict(_named(model, inputs))
    for name, form in problem.formats.inputs.items():
        tensors = tensors_of(arguments.get(name))
        if not tensors:
            raise ProblemError(f"{problem.name}: formats.inputs.{name}: get_inputs gives no tensor for {name}")
        for tensor in tensors:
            _check(f"{problem.name}: formats.inputs.{name}", tensor, form)
    returned = dict(leaves(outputs, "output"))
    for path, declared in problem.formats.outputs.items():
        where = f"{problem.name}: formats.outputs.{path!r}"
        codes = _tensor(where, path, returned)
        if declared.format is not None:
            _check(where, codes, declared.format)
            if declared.scales is not None:
                _check_scales(where, codes, _tensor(where, declared.scales, returned), declared.format)


def _named(model: torch.nn.Module, inputs: Arguments) -> Iterator[tuple[str, Value]]:
    """Yield the inputs with the names of forward's parameters; further inputs, of `*args`, have no name."""
    names = list(inspect.signature(model.forward).parameters)
    for number, value in enumerate(inputs.args):
        yield (names[number] if number < len(names) else "", value)
    yield from inputs.kwargs.items()


def _tensor(where: str, path: str, returned: dict[str, Value]) -> torch.Tensor:
    output = returned.get(path)
    if not isinstance(output, torch.Tensor):
        tensors = ", ".join(name for name, value in returned.items() if isinstance(value, torch.Tensor)) or "none"
        raise ProblemError(f"{where}: forward returns no tensor {path}; tensors: {tensors}")
    return output


def _check(where: str, tensor: torch.Tensor, form: ElementFormat) -> None:
    dtypes = _E8M0 if form is ElementFormat.E8M0 else (dtype_of(form),)
    if tensor.dtype not in dtypes:
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ProblemError(f"{where}: {form.value} is a tensor of {names}, but this one is {tensor.dtype}")
    if is_packed(form) and not tensor.dim():
        raise ProblemError(f"{where}: {form.value} has two elements in each byte of the last dimension; found a scalar")


def _check_scales(where: str, codes: torch.Tensor, scales: torch.Tensor, form: ElementFormat) -> None:
    _check(f"{where}, scales", scales, scale_format(form))
    blocks = -(-codes.shape[-1] * 2 // (block_elements(form) or 1))
    shape = [*codes.shape[:-1], blocks]
    if list(scales.shape) != shape:
        message = f"{where}: the scales of {list(codes.shape)} bytes have the shape {list(scales.shape)}"
        raise ProblemError(message, hint=f"{form.value} has one scale for {block_elements(form)} elements: {shape}")
