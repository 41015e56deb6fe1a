"""Dependence of the reference's outputs on its mode, training or evaluation, and on random numbers."""

import contextlib
from collections.abc import Iterator

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.pytree import Value

_LEAST = 1e-3
"""Smallest distance between outputs of different functions, relative to the size (root mean squares). Other kernels of
the same function, as for attention in evaluation, differ by roundings of fp32."""


def depends_on_mode(reference: Reference, seed: int) -> bool:
    """Return whether a reference in training computes other values after `eval()`; False if a run is not possible."""
    try:
        with out_of_memory():
            block = reference.blocks(reference.draw(seed))[0]
            training, evaluation = (
                reference.values(reference.altered(block, seed, None, mode))
                for mode in (contextlib.nullcontext(), _in_evaluation(reference.model))
            )
    except (ProblemError, MemoryError):
        return False
    return any(differ(value, evaluation.get(path)) for path, value in training.items())


def depends_on_random_numbers(reference: Reference, seed: int) -> bool:
    """Return whether random numbers of forward decide about values; False if a run is not possible.

    Dropout with probability 0 draws numbers, too.
    """
    try:
        with out_of_memory():
            block = reference.blocks(reference.draw(seed))[0]
            one, other = (
                reference.values(reference.altered(block, random_seed, None, contextlib.nullcontext()))
                for random_seed in (seed, seed + 1)
            )
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
