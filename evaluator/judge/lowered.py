"""Whether wrong values are those of fewer bits than the problem asks for.

An output that is off proves nothing by the size of its error. But rounding is a function of the operands: where the
reference is computed once more with operands, inputs or output rounded to TF32, bf16 or fp16, it is off in the same
elements, the same way and as far. Errors of any other origin do not go with those.
"""

import contextlib
import itertools
from collections.abc import Iterator

import torch

from evaluator.errors import ProblemError
from evaluator.judge.arithmetic import Format, rounded, with_operands, with_results
from evaluator.judge.reference import Arguments, Reference, by_path
from evaluator.judge.trees import mapped
from evaluator.runner import calls

_CORRELATION = 0.9
"""Of two unrelated errors of 1000 elements, none is ever above 0.2."""
_ENOUGH = 64
_SAMPLE = 1 << 20
_WIDEST = 0.1
"""bf16 rounds by 2**-9; what is off by a tenth of its size is wrong in some other way."""


def format_of(
    reference: Reference,
    inputs: Arguments,
    random_seed: int,
    gradients: list[torch.Tensor] | None,
    path: str,
    actual: torch.Tensor,
) -> Format | None:
    """Name the format whose rounding explains how far the output at `path` is from the exact one; None if none does.

    `inputs` may be those of the output's first rows alone.
    """
    if actual.dtype != torch.float32 or actual.numel() < _ENOUGH:
        return None
    exact = by_path(reference.expected(inputs, random_seed, gradients).exact)[path]
    error, size = _flat(actual if actual.shape == exact.shape else actual[: len(exact)], exact)
    if not bool(torch.isfinite(error).all()) or float(error.norm()) > _WIDEST * float(size.norm()):
        return None
    best, agreement = None, _CORRELATION
    for to in Format:
        for found in _lowered(reference, inputs, random_seed, gradients, to):
            lower = by_path(found)[path]
            if not isinstance(lower, torch.Tensor) or lower.shape != exact.shape:
                continue
            if (seen := _agreement(error, lower, exact)) > agreement:
                best, agreement = to, seen
    return best


def _lowered(
    reference: Reference, inputs: Arguments, random_seed: int, gradients: list[torch.Tensor] | None, to: Format
) -> Iterator[calls.Result]:
    """Compute the reference with fewer bits: those of operands, of inputs and weights, of all, of the output."""

    def down(tensor: torch.Tensor) -> torch.Tensor:
        return rounded(tensor, to)

    low = Arguments(mapped(inputs.args, down), mapped(inputs.kwargs, down))
    with contextlib.suppress(ProblemError):
        yield reference.altered(inputs, random_seed, gradients, with_operands(to))
    with contextlib.suppress(ProblemError):
        yield reference.altered(low, random_seed, gradients, rounded_weights(reference.model, to))
    with contextlib.suppress(ProblemError), rounded_weights(reference.model, to):
        yield reference.altered(low, random_seed, gradients, with_results(to))
    with contextlib.suppress(ProblemError):
        plain = reference.altered(inputs, random_seed, gradients, contextlib.nullcontext())
        found = (
            None if plain.gradients is None else {name: mapped(each, down) for name, each in plain.gradients.items()}
        )
        yield calls.Result(mapped(plain.outputs, down), found)


@contextlib.contextmanager
def rounded_weights(model: torch.nn.Module, to: Format) -> Iterator[None]:
    """Have a model's weights rounded for a while."""
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


def _flat(one: torch.Tensor, exact: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give a sample of the differences, and of the exact values."""
    step = max(exact.numel() // _SAMPLE, 1)
    one, exact = (tensor.reshape(-1)[::step].double() for tensor in (one, exact))
    return one - exact, exact


def _agreement(error: torch.Tensor, lower: torch.Tensor, exact: torch.Tensor) -> float:
    """Give the correlation of two errors, or 0 where one is more than twice as large as the other."""
    other, _ = _flat(lower, exact)
    one_size, other_size = float(error.norm()), float(other.norm())
    if not (bool(torch.isfinite(other).all()) and one_size and other_size and 0.5 < one_size / other_size < 2.0):
        return 0.0
    return float(error @ other) / (one_size * other_size)
