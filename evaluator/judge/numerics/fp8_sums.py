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
from collections.abc import Iterator
from typing import Any

import torch

from evaluator.judge.numerics.arithmetic_modes import generators, product_handlers, with_handlers
from evaluator.judge.numerics.summation_orders import changed_by, error_of
from evaluator.judge.reference.reference import Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.protocol.model_call import Result
from evaluator.protocol.pytree import tensors_of

_DEVIATION = 2e-4
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@contextlib.contextmanager
def by_tensor_cores() -> Iterator[None]:
    """Context with products of fp8 values in fp32 off by `_DEVIATION`, up or down at random."""
    generator = generators(0)

    def product(func: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = func(a, b)
        if a.dtype != torch.float32 or not (_is_fp8(a) and _is_fp8(b)):
            return total
        up = torch.empty_like(total).bernoulli_(generator=generator(a.device))
        size: torch.Tensor = func(a * a, b * b).sqrt()
        return total + (2 * up - 1) * _DEVIATION * size

    with with_handlers(product_handlers(product)):
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
    tensors = [*tensors_of(list(inputs)), *reference.model.parameters(), *reference.model.buffers()]
    if not any(tensor.dtype in _FP8 for tensor in tensors):
        return {}
    changed = changed_by(by_tensor_cores(), reference, inputs, gradients, plain, random_seed)
    return {path: error_of(path, sides, limit) for path, sides, limit in changed}
