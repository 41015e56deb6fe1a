"""Values of the reference with rounded operands, inputs or results, at sampled places of its outputs."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch

from evaluator.errors import ProblemError
from evaluator.judge.numerics.arithmetic_modes import Format, rounded, with_operands, with_results
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import mapped


class Errors(NamedTuple):
    """Sample of an output: flat indices (`places`), and the values at these indices in float64.

    `actual` is the submission's value, `exact` the expected value, `honest` the plain reference's value.
    """

    places: torch.Tensor
    actual: torch.Tensor
    exact: torch.Tensor
    honest: torch.Tensor


class ReferenceCall(NamedTuple):
    """A call of the reference, or a block of the call; without `in_float64`, only the plain model can run."""

    reference: Reference
    inputs: Arguments
    random_seed: int
    gradients: list[torch.Tensor] | None
    in_float64: bool


class CallErrors(NamedTuple):
    """Errors of a call's outputs, by path.

    `again` makes the call anew: the inputs of many calls may be too large to keep.
    """

    again: Callable[[], ReferenceCall]
    outputs: Mapping[str, Errors]


def with_rounded_operands(
    again: Callable[[], ReferenceCall], to: Format, outputs: Mapping[str, Errors]
) -> dict[str, torch.Tensor]:
    """Round the operands of matrix products and convolutions."""
    return values_of(again(), None, with_operands(to), outputs)


def with_rounded_inputs(
    again: Callable[[], ReferenceCall], to: Format, outputs: Mapping[str, Errors]
) -> dict[str, torch.Tensor]:
    """Round inputs and weights."""
    call = again()
    return values_of(call, to, _rounded_weights(call, to), outputs)


@contextlib.contextmanager
def _rounding_everywhere(call: ReferenceCall, to: Format) -> Iterator[None]:
    with _rounded_weights(call, to), with_results(lambda tensor: rounded(tensor, to)):
        yield


def _results(again: Callable[[], ReferenceCall], to: Format, outputs: Mapping[str, Errors]) -> dict[str, torch.Tensor]:
    """Round inputs, weights and every result."""
    call = again()
    return values_of(call, to, _rounding_everywhere(call, to), outputs)


def _outputs(again: Callable[[], ReferenceCall], to: Format, outputs: Mapping[str, Errors]) -> dict[str, torch.Tensor]:
    """Round the exact answer alone."""
    del again
    return {path: rounded(errors.exact, to) for path, errors in outputs.items()}


Way = Callable[[Callable[[], ReferenceCall], Format, Mapping[str, Errors]], dict[str, torch.Tensor]]
WAYS: tuple[Way, ...] = (with_rounded_operands, with_rounded_inputs, _results, _outputs)


def values_of(
    call: ReferenceCall,
    to: Format | None,
    mode: contextlib.AbstractContextManager[None],
    outputs: Mapping[str, Errors],
) -> dict[str, torch.Tensor]:
    """Return the altered reference's values at the sampled places; an empty dict if the reference fails.

    Inputs are rounded first if `to` is given.
    """
    try:
        inputs = call.inputs if to is None else _rounded_inputs(call.inputs, to)
        result = call.reference.altered(inputs, call.random_seed, call.gradients, mode, in_float64=call.in_float64)
    except ProblemError:
        return {}
    values: dict[str, Value] = by_path(result)
    return {
        path: value.reshape(-1)[errors.places].double()
        for path, errors in outputs.items()
        if isinstance(value := values.get(path), torch.Tensor) and value.numel() > int(errors.places.max())
    }


def _rounded_inputs(inputs: Arguments, to: Format) -> Arguments:
    def down(tensor: torch.Tensor) -> torch.Tensor:
        return rounded(tensor, to)

    return Arguments(mapped(inputs.args, down), mapped(inputs.kwargs, down))


def _rounded_weights(call: ReferenceCall, to: Format) -> contextlib.AbstractContextManager[None]:
    model = call.reference.exact_model if call.in_float64 else call.reference.model
    return contextlib.nullcontext() if model is None else rounded_weights(model, to)


@contextlib.contextmanager
def rounded_weights(model: torch.nn.Module, to: Format) -> Iterator[None]:
    """Context with a model's weights and buffers rounded to a format."""
    state = list(itertools.chain(model.parameters(), model.buffers()))
    before = [tensor.detach().clone() for tensor in state]
    try:
        with torch.no_grad():
            for tensor in state:
                tensor.copy_(rounded(tensor, to))
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(state, before, strict=True):
                tensor.copy_(value)
