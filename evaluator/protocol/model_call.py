"""A call of a model, alike in judge and runner, and the seeding of a call."""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from evaluator.protocol.pytree import mapped, tensors_of


class Result(NamedTuple):
    """Outputs and gradients of a call. `gradients` is None after a forward-only call; a missing gradient is None."""

    outputs: Any
    gradients: dict[str, torch.Tensor | None] | None


def run(
    model: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    output_gradients: Sequence[torch.Tensor] | None,
) -> Result:
    """Run forward, and backward if `output_gradients` are given."""
    if output_gradients is None:
        return forward(model, args, kwargs)
    return forward_backward(model, args, kwargs, output_gradients)


def forward(model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result:
    """Run forward without recording gradients."""
    with torch.no_grad():
        return Result(model(*args, **kwargs), None)


def forward_backward(
    model: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    output_gradients: Sequence[torch.Tensor],
) -> Result:
    """Run forward, then backward from `output_gradients`: one for each of `differentiable(outputs)`.

    Gradient keys are `input NAME` (a position or a keyword) and `parameter NAME`.
    """
    leaves = {f"input {name}": leaf for name, leaf in _floating_inputs(args, kwargs)}
    for leaf in leaves.values():
        leaf.requires_grad_(True)  # noqa: FBT003 - torch's signature
    parameters = dict(model.named_parameters()) if isinstance(model, torch.nn.Module) else {}
    leaves |= {f"parameter {name}": value for name, value in parameters.items() if value.requires_grad}
    for leaf in leaves.values():
        leaf.grad = None
    outputs = model(*args, **kwargs)
    roots = differentiable(outputs)
    pairs = [
        (root, gradient)
        for root, gradient in zip(roots, output_gradients, strict=False)
        if root.requires_grad and root.shape == gradient.shape
    ]
    if pairs:
        torch.autograd.backward([root for root, _ in pairs], [gradient for _, gradient in pairs])
    return Result(outputs, {name: leaf.grad for name, leaf in leaves.items()})


def differentiable(outputs: Any) -> list[torch.Tensor]:
    """Return the floating-point outputs, with dicts in the order of their keys' text, in any order of the dict."""
    if isinstance(outputs, Mapping):
        outputs = [outputs[key] for key in sorted(outputs, key=str)]
    if isinstance(outputs, list | tuple):
        return [leaf for item in outputs for leaf in differentiable(item)]
    return [leaf for leaf in tensors_of(outputs) if leaf.is_floating_point()]


def readable(result: Result) -> Result:
    """Return a result of plain tensors without lazy conjugate or negative bits: memory holds all values.

    A subclass of Tensor may report the memory of a temporary tensor, different at each request.

    Callers keep the returned result. A temporary copy would free its address for the next call's outputs.
    """
    gradients = result.gradients
    if gradients is not None:
        gradients = {name: None if value is None else _in_full(value) for name, value in gradients.items()}
    try:
        return Result(mapped(result.outputs, _in_full), gradients)
    except RecursionError:  # A self-referential answer. `Outbox` reports it to the judge.
        return Result(result.outputs, gradients)


def _in_full(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - a subclass may answer in its own way
        if type(tensor) is not torch.Tensor:
            try:
                tensor = torch.Tensor.as_subclass(tensor, torch.Tensor)
            except Exception:  # noqa: BLE001 - nested and masked tensors, for which `Outbox` has a name
                return tensor
        return tensor.detach().resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor


def _floating_inputs(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]]:
    arguments = [(str(index), value) for index, value in enumerate(args)] + list(kwargs.items())
    inputs = []
    for name, value in arguments:
        leaves = [leaf for leaf in tensors_of(value) if leaf.is_floating_point()]
        single = isinstance(value, torch.Tensor)
        inputs += [(name if single else f"{name}.{index}", leaf) for index, leaf in enumerate(leaves)]
    return inputs


def seed_torch(seed: int) -> None:
    """Seed the CPU generator and, if CUDA is initialized, the CUDA generator.

    `torch.manual_seed` also records the full call stack for every uninitialized device type: 0.3 ms per call.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed(seed)


def seed_all(seed: int) -> None:
    """Seed PyTorch's generators, `random` and NumPy's generator, before inputs or weights are made.

    Before a call, only PyTorch is seeded: a reference whose forward draws other random numbers has a state between
    calls, and is refused.
    """
    seed_torch(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % (1 << 32))
