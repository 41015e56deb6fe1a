"""Rounding of sums of fp8 products by tensor cores with 14 bits, in a call.

Hopper's tensor cores align 32 products and the accumulator to the largest, and cut off bits below 2**-13 of its leading
bit (DeepSeek-V3's technical report, section 3.5.2: 14 bits; SageAttention2 found 13 bits of mantissa in the
accumulator). Careful kernels, as DeepGEMM's, move sums to fp32 after a tile of 128 products. Let Q be the sum of the
squared products of an element. By the model of `tests/unit/judge/compare/test_sums_of_fp8.py`, tiles of 128 are off by
a standard deviation of

    1.3e-4 sqrt(Q)

The error belongs to the element, not to its row. In a column with a scale far above all others, an element that cancels
makes the whole row small, and its own error stays as large. Four times the deviation here, 2e-4 sqrt(Q), are six
standard deviations. Sums of all 4096 products in a row are off by 1.3e-3 sqrt(Q).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from evaluator.errors import ProblemError
from evaluator.judge.compare.limits import limit_of
from evaluator.judge.compare.tensor_comparison import Sides
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.numerics.arithmetic_modes import with_handlers
from evaluator.judge.numerics.summation_orders import error_of
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.protocol.model_call import Result, tensors_of

aten = torch.ops.aten
_DEVIATION = 2e-4
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@contextlib.contextmanager
def by_tensor_cores() -> Iterator[None]:
    """Context with products of fp8 values in fp32 off by `_DEVIATION`, up or down at random."""
    generators: dict[torch.device, torch.Generator] = {}

    def product(func: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = func(a, b)
        if a.dtype != torch.float32 or not (_is_fp8(a) and _is_fp8(b)):
            return found
        generator = generators.setdefault(a.device, torch.Generator(a.device).manual_seed(0))
        up = torch.empty_like(found).bernoulli_(generator=generator)
        size: torch.Tensor = func(a * a, b * b).sqrt()
        return found + (2 * up - 1) * _DEVIATION * size

    def added(plain: Any) -> Callable[..., torch.Tensor]:
        def add(
            _: Any, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
        ) -> torch.Tensor:
            return beta * c + alpha * product(plain, a, b)

        return add

    handlers: Mapping[Any, Callable[..., torch.Tensor]] = {
        aten.mm.default: product,
        aten.bmm.default: product,
        aten.mv.default: product,
        aten.addmm.default: added(aten.mm.default),
        aten.baddbmm.default: added(aten.bmm.default),
    }
    with with_handlers(handlers):
        yield


def _is_fp8(x: torch.Tensor) -> bool:
    """Return whether all elements are values of a format of 8 bits."""
    return any(torch.equal(x.to(form).to(x.dtype), x) for form in _FP8)


def rounding_of_fp8_sums(
    reference: Reference, inputs: Arguments, gradients: list[torch.Tensor] | None, plain: Result, random_seed: int
) -> dict[str, float]:
    """Return by path how far such sums move an output, relative to its row; empty without tensors in fp8.

    `plain` is the plain reference's result.
    """
    given = [*tensors_of(list(inputs)), *reference.model.parameters(), *reference.model.buffers()]
    if not any(tensor.dtype in _FP8 for tensor in given):
        return {}
    honest = reference.values(plain)
    try:
        found = reference.values(reference.altered(inputs, random_seed, gradients, by_tensor_cores()))
    except ProblemError:  # An operation without support for the mode is no fault of the problem.
        return {}
    errors: dict[str, float] = {}
    for path, value in honest.items():
        moved, limit = found.get(path), limit_of(reference.problem, path, value)
        if not isinstance(limit, Bounds) or not isinstance(value, torch.Tensor) or not isinstance(moved, torch.Tensor):
            continue
        if value.shape == moved.shape:
            errors[path] = error_of(path, Sides(moved, value, value), limit)
    return errors
