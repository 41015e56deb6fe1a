"""Dependence of the reference's outputs on its mode, on random numbers, and on its weights."""

import contextlib
from collections.abc import Iterator

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.number_formats import wide
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import tensors_of

_LEAST = 1e-3
"""Smallest distance between outputs of different functions, relative to the size (root mean squares). Other kernels of
the same function, as for attention in evaluation, differ by roundings of fp32."""


def depends_on_mode(reference: Reference, seed: int) -> bool:
    """Return whether a reference in training computes other values after `eval()`; False if a run is not possible."""
    return _changes(reference, seed, seed, _in_evaluation(reference.model))


def depends_on_random_numbers(reference: Reference, seed: int) -> bool:
    """Return whether random numbers of forward decide about values; False if a run is not possible.

    Dropout with probability 0 draws numbers, too.
    """
    return _changes(reference, seed, seed + 1, contextlib.nullcontext())


def _changes(reference: Reference, seed: int, other_seed: int, mode: contextlib.AbstractContextManager[None]) -> bool:
    """Return whether a call has other values with the random seed `other_seed`, in `mode`."""
    try:
        with out_of_memory():
            block = reference.blocks(reference.draw(seed))[0]
            one = reference.values(reference.altered(block, seed, None, contextlib.nullcontext()))
            other = reference.values(reference.altered(block, other_seed, None, mode))
    except (ProblemError, MemoryError):
        return False
    return any(differ(value, other.get(path)) for path, value in one.items())


@contextlib.contextmanager
def _in_evaluation(model: torch.nn.Module) -> Iterator[None]:
    """Context with the model after `eval()`. Afterwards each module has its own mode again."""
    before = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in before:
            module.training = training


def differ(one: Value, other: Value) -> bool:
    """Return whether two outputs are those of different functions, and not of kernels with other rounding."""
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and one.shape == other.shape):
        return isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor)
    if not one.is_floating_point():
        return not torch.equal(one, other)
    distance, size = (one.double() - other.double()).square().mean(), one.double().square().mean()
    return bool(distance > _LEAST**2 * size)


_SEEDS = (1, 2, 3)


def settle_weights(reference: Reference, inputs: Arguments) -> None:
    """Fix the weights of a reference that gives finite outputs with its constructed weights alone.

    If the reference accepts other magnitudes but no other signs, only the signs stay fixed. A reference whose
    output does not depend on the weights accepts any weights.
    """
    weights = reference.weights
    if not weights.names:
        return
    first = _finite_parts(reference.forward(inputs, 0))
    why_not = _refusal(reference, inputs, first)
    if why_not is not None and weights.keep_signs():
        why_not = _refusal(reference, inputs, first)
    if why_not is not None:
        weights.leave(why_not)


def _refusal(reference: Reference, inputs: Arguments, first: list[torch.Tensor]) -> str | None:
    """Return the reason why the reference accepts no other weights; None if accepted."""
    try:
        for seed in _SEEDS:
            reference.set_weights(seed)
            if not _still_finite(first, reference.forward(inputs, 0)):
                return "the reference gives no finite numbers with other weights"
    except ProblemError as refusal:
        return f"the reference refuses other weights: {refusal.message}"[:200]
    finally:
        reference.set_weights(None)
    return None


def _finite_parts(value: Value) -> list[torch.Tensor]:
    """Return where each tensor of a value is finite, as booleans in its shape."""
    return [torch.isfinite(wide(leaf)) for leaf in tensors_of(value)]


def _still_finite(before: list[torch.Tensor], value: Value) -> bool:
    """Return whether all formerly finite elements are still finite."""
    now = _finite_parts(value)
    same = len(now) == len(before) and all(one.shape == other.shape for one, other in zip(before, now, strict=True))
    return same and all(bool((other | ~one).all()) for one, other in zip(before, now, strict=True))
