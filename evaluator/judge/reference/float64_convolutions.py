"""Transposed convolutions in float64 on a GPU, as matrix products.

On an H200, cuDNN takes 0.9 to 7 times as long (docs/measured.md). An element (k1, ..., kd) of the
kernel adds the product of its matrix and the input to the output, from offset k * dilation - padding on, in steps of
the stride. The order of the additions differs from cuDNN's, by roundings of float64.
"""

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from evaluator.protocol.operations import OperationMode

_MOST_ELEMENTS = 1 << 25
"""Largest number of elements of a product; the product of a single kernel element and item may be larger."""
NARROW = (torch.float32, torch.float16, torch.bfloat16)
"""Dtypes of numbers with fewer bits than float64."""
_MOST_SPATIAL = 3
_MODULES = (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)


class TransposedConvolutions(OperationMode):
    """Dispatch mode for transposed convolutions in float64, computed as matrix products."""

    def __init__(self) -> None:
        """Leave all other operations unchanged."""
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        if func is torch.ops.aten.convolution.default and not kwargs and _applies(*args):
            x, weight, bias, stride, padding, dilation, _, output_padding, _ = args
            return transposed_convolution(x, weight, bias, stride, padding, dilation, output_padding)
        return func(*args, **(kwargs or {}))


class WideCasts(OperationMode):
    """Dispatch mode in which a cast to a narrower number gives float64: the exact value is not rounded.

    Of whole numbers too: PyTorch multiplies no float64 by positions in fp32.
    """

    def __init__(self) -> None:
        """Leave all other operations unchanged."""
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        options = dict(kwargs or {})
        is_cast = func is torch.ops.aten._to_copy.default and options.get("dtype") in NARROW  # noqa: SLF001
        if is_cast and args[0].dtype not in NARROW and not args[0].dtype.is_complex:
            options["dtype"] = torch.float64
        return func(*args, **options)


@contextlib.contextmanager
def float64_mode(model: torch.nn.Module | None, *, widens_casts: bool = False) -> Iterator[None]:
    """Context for calls of `model` in float64: the mode for a model with a module `ConvTranspose1d` to `3d`.

    A mode costs microseconds for each operation. Gradients, grouped convolutions and other models stay cuDNN's.
    """
    with contextlib.ExitStack() as stack:
        if model is not None and any(isinstance(module, _MODULES) for module in model.modules()):
            stack.enter_context(TransposedConvolutions())
        if model is not None and widens_casts:
            stack.enter_context(WideCasts())
        yield


def transposed_convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> torch.Tensor:
    """Return the transposed convolution of `x`, (N, C, ...), with `weight`, (C, outputs, ...).

    The arguments are those of `aten.convolution`, with a value for each spatial dimension.
    """
    sizes, kernel, (items, channels), outputs = x.shape[2:], weight.shape[2:], x.shape[:2], weight.shape[1]
    lengths = [
        (size - 1) * step - 2 * pad + spread * (span - 1) + more + 1
        for size, step, pad, spread, span, more in zip(
            sizes, stride, padding, dilation, kernel, output_padding, strict=True
        )
    ]
    result = x.new_zeros(items, outputs, *lengths)
    if bias is not None:
        result += bias.reshape(outputs, *(1,) * len(sizes))
    elements = list(itertools.product(*map(range, kernel)))
    matrices = weight.reshape(channels, outputs, len(elements)).permute(2, 1, 0)
    flat = x.reshape(items, channels, math.prod(sizes))
    at_once = max(_MOST_ELEMENTS // (outputs * flat.shape[-1]), 1)
    per_product = min(at_once, len(elements))
    per_step = at_once // per_product
    for first, start in itertools.product(range(0, items, per_step), range(0, len(elements), per_product)):
        some, chosen = slice(first, first + per_step), elements[start : start + per_product]
        matrix = matrices[start : start + per_product].reshape(len(chosen) * outputs, channels)
        terms = torch.matmul(matrix, flat[some]).reshape(-1, len(chosen), outputs, *sizes)
        for number, element in enumerate(chosen):
            ranges = [
                _ranges(size, length, step, at * spread - pad)
                for size, length, step, at, spread, pad in zip(
                    sizes, lengths, stride, element, dilation, padding, strict=True
                )
            ]
            if all(source.start < source.stop for source, _ in ranges):
                sources, targets = (tuple(slices) for slices in zip(*ranges, strict=True))
                result[(some, slice(None), *targets)].add_(terms[(slice(None), number, slice(None), *sources)])
    return result


def _ranges(size: int, length: int, step: int, offset: int) -> tuple[slice, slice]:
    """Return the inputs of a dimension with a place in the output from `offset` on, and the places."""
    first = max(-(offset // step), 0)
    last = min((length - 1 - offset) // step, size - 1)
    return slice(first, last + 1), slice(first * step + offset, last * step + offset + 1, step)


def _applies(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *rest: Any) -> bool:
    """Return whether `aten.convolution` has the arguments of a transposed convolution in float64 on a GPU.

    For groups, PyTorch would copy the matrices for each item.
    """
    transposed, groups = rest[3], rest[5]
    batched = 0 < weight.dim() - 2 <= _MOST_SPATIAL and x.dim() == weight.dim()
    wide = all(tensor.dtype == torch.float64 for tensor in (x, weight, bias) if tensor is not None)
    return bool(transposed) and groups == 1 and batched and wide and x.is_cuda and min(x.numel(), weight.numel()) > 0
