"""Dispatch modes that change a reference's arithmetic: order of sums, rounding of results, format of operands.

A mode intercepts the operations that PyTorch dispatches below a model (`OperationMode`), and works for any reference.
Another summation order shows the rounding error of an honest kernel. Operands in fewer bits show the error of a kernel
that rounds its operands. `SummationOrder.ROUNDED` and `with_results` change every floating-point result. The other
modes change matrix products, convolutions and sums, and leave unknown operations unchanged.

TF32 keeps 10 bits of the mantissa, like fp16, and fp32's exponent. The tensor cores of an H100 truncate unrounded
operands; cuDNN and CUTLASS round to nearest.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from evaluator.judge.numerics import products, single_accumulator
from evaluator.judge.numerics.composites import COMPOSITES, NAIVE, WrittenOut
from evaluator.judge.numerics.single_accumulator import MOST_ELEMENTS, accumulated, running
from evaluator.judge.tensors.number_formats import format_of
from evaluator.protocol.operations import OperationMode

aten = torch.ops.aten

_STEPS = 256
"""Most sequential additions of tensors too large for `single_accumulator`, whose sums are first reduced to as many."""
_HALF = (torch.float16, torch.bfloat16)
_COPIES = frozenset({aten.clone.default, aten._to_copy.default, aten.cat.default, aten.stack.default})  # noqa: SLF001
_CHOSEN = frozenset(
    {
        *(aten.index, aten.index_select, aten.gather, aten.embedding, aten.take, aten.masked_select),
        *(aten.sort, aten.topk),
    }
)
"""Operations whose results are elements of an input, chosen by an index or by their order. If every bfloat16 key that a
page table names moved by half a unit in the last place, scores of thousands would move by a hundred."""
_EXACT = frozenset({aten.round, aten.floor, aten.ceil, aten.trunc, aten.clamp, aten.clamp_min, aten.clamp_max})
_UNITS = {torch.float16: 0.5, torch.bfloat16: 0.5}
_DEFAULT_UNITS = 1.0
_NOTHING: Mapping[Any, Callable[..., Any]] = {}


class SummationOrder(StrEnum):
    """Alternative orders of a sum, and perturbed results."""

    REVERSED = "reversed"
    SEQUENTIAL = "sequential"  # each sum has one fp32 accumulator (`single_accumulator`), also in half precision
    ROUNDED = "rounded"  # each result is off by 1 ulp (0.5 ulp in half precision)
    NAIVE = "naive"  # textbook formulas (`composites.NAIVE`)


class Format(StrEnum):
    """Formats with fewer bits than fp32, from fine to coarse.

    TF32 and fp16 have equal mantissas, and results rarely distinguish the two.
    """

    TF32 = "TF32"
    TF32_CUT = "TF32, cut off"
    FP16 = "fp16"
    BF16 = "bf16"


def rounded(tensor: torch.Tensor, to: Format) -> torch.Tensor:
    """Return a float32 or float64 tensor rounded to a format, in its original dtype; other tensors return unchanged.

    >>> rounded(torch.tensor([1 + 2**-11 + 2**-20]), Format.TF32).item() == 1 + 2**-10
    True
    """
    if tensor.dtype == torch.float64:
        return rounded(tensor.float(), to).double()
    if tensor.dtype != torch.float32:
        return tensor
    match to:
        case Format.BF16:
            return tensor.bfloat16().float()
        case Format.FP16:
            return tensor.half().float()
        case Format.TF32 | Format.TF32_CUT:
            bits = tensor.contiguous().view(torch.int32)
            # Round to nearest, ties to even: add half of the last kept place, minus 1 if the last kept bit is even.
            half = 0xFFF + ((bits >> 13) & 1) if to is Format.TF32 else 0
            return torch.where(torch.isfinite(tensor), ((bits + half) & ~0x1FFF).view(torch.float32), tensor)


def moved(tensor: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Return a tensor with each floating-point element moved up or down by 1 ulp (0.5 ulp in half precision).

    Tensors of float64 return unchanged, and so do codes in fp8: an input in fp8 is exact.

    >>> moved(torch.tensor([3, 4])).tolist()
    [3, 4]
    """
    if not tensor.is_floating_point() or tensor.dtype == torch.float64 or format_of(tensor.dtype) is not None:
        return tensor
    drawn = generator or torch.Generator(tensor.device).manual_seed(0)
    sign = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).bernoulli_(generator=drawn)
    step = _UNITS.get(tensor.dtype, _DEFAULT_UNITS) * torch.finfo(tensor.dtype).eps
    return torch.where(torch.isfinite(tensor), tensor * (1 + (2 * sign - 1) * step), tensor)


class _Altered(OperationMode):
    """Dispatch mode with handlers in place of some operations, and operations of several steps written out.

    A written-out operation is a sequence of operations that the mode handles.
    """

    def __init__(
        self, handlers: Mapping[Any, Callable[..., Any]], written_out: Mapping[Any, Callable[..., Any]]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._handlers = handlers
        self._written_out = WrittenOut(written_out)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        options = dict(kwargs or {})
        if self._written_out.has(func):
            with self:
                return self._written_out.run(func, args, options)
        handler = self._handlers.get(func)
        return func(*args, **options) if handler is None else handler(func, *args, **options)


class _EachResult(OperationMode):
    """Dispatch mode for a change of each floating-point result."""

    def __init__(
        self,
        change: Callable[[torch.Tensor], torch.Tensor],
        written_out: Mapping[Any, Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._change = change
        self._written_out = WrittenOut(written_out or {})

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        if self._written_out.has(func):
            with self:
                return self._written_out.run(func, args, dict(kwargs or {}))
        result = func(*args, **dict(kwargs or {}))
        # Views and results written into an argument are not new values; copies, chosen elements and exact operations
        # round nothing. A whole number moved by an ulp would lose 1 in a cast to integers.
        is_exact = func in _COPIES or func.overloadpacket in _CHOSEN or func.overloadpacket in _EXACT
        if is_exact or any(returned.alias_info is not None for returned in func._schema.returns):  # noqa: SLF001
            return result
        if isinstance(result, torch.Tensor):
            return self._changed(result)
        return type(result)(self._changed(item) for item in result) if type(result) in (tuple, list) else result

    def _changed(self, value: Any) -> Any:
        return self._change(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def generators(seed: int) -> Callable[[torch.device], torch.Generator]:
    """Return a function that gives each device a generator of its own with the seed `seed`."""
    return functools.cache(lambda device: torch.Generator(device).manual_seed(seed))


@contextlib.contextmanager
def with_handlers(
    handlers: Mapping[Any, Callable[..., Any]], written_out: Mapping[Any, Callable[..., Any]] = _NOTHING
) -> Iterator[None]:
    """Context with a handler in place of each of some operations, called with the operation and its arguments.

    Operations in `written_out` are computed by their forms, whose operations have handlers too.
    """
    with sdpa_kernel(SDPBackend.MATH), _Altered(handlers, written_out):
        yield


@contextlib.contextmanager
def in_order(order: SummationOrder | products.PartialProduct, draw: int = 0) -> Iterator[None]:
    """Context with sums and products in another order, or with perturbed results.

    Each `draw` of an order with one accumulator, or with perturbed results, has other roundings of the same size.
    """
    with sdpa_kernel(SDPBackend.MATH), _mode(order, draw):
        yield


def _mode(order: SummationOrder | products.PartialProduct, draw: int) -> OperationMode:
    match order:
        case products.PartialProduct():
            return _Altered(products.PARTIAL[order], _NOTHING)
        case SummationOrder.REVERSED:
            return _Altered(_REVERSED, COMPOSITES)
        case SummationOrder.SEQUENTIAL:
            return _Altered(_one_accumulator(draw), COMPOSITES)
        case SummationOrder.NAIVE:
            return _Altered({}, NAIVE)
        case SummationOrder.ROUNDED:
            generator = generators(draw)
            return _EachResult(lambda tensor: moved(tensor, generator(tensor.device)), COMPOSITES)


@contextlib.contextmanager
def with_results(change: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Context with a `change` of every floating-point result that is not exact: `rounded`, to compute in fewer bits."""
    with sdpa_kernel(SDPBackend.MATH), _EachResult(change):
        yield


@contextlib.contextmanager
def with_operands(to: Format, draw: int = 0) -> Iterator[None]:
    """Context with operands of matrix products and convolutions rounded to a format, as for tensor cores.

    Draws from 1 on divide each row of an inexact operand by a random number from 1 to 2 while the row is rounded:
    FlashAttention rounds weights before the division by their sum. They leave an operand that the format cannot hold:
    an honest kernel does not overflow.
    """
    generator = generators(draw)

    def kept(operand: torch.Tensor) -> torch.Tensor:
        low = rounded(operand, to)
        if not draw or torch.equal(low, operand):
            return low
        if not bool(low.isfinite().all()):
            return operand
        factor = torch.empty_like(operand[..., :1]).uniform_(1.0, 2.0, generator=generator(operand.device))
        return rounded(operand / factor, to) * factor

    def first_two(func: Any, a: torch.Tensor, b: torch.Tensor, *rest: Any, **options: Any) -> Any:
        return func(kept(a), kept(b), *rest, **options)

    def last_two(func: Any, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **options: Any) -> Any:
        return func(c, kept(a), kept(b), **options)

    both_first = (aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default, aten.convolution.default)
    both_last = (aten.addmm.default, aten.baddbmm.default, aten.addmv.default)
    handlers: dict[Any, Callable[..., Any]] = {
        **dict.fromkeys(both_first, first_two),
        **dict.fromkeys(both_last, last_two),
    }
    with with_handlers(handlers):
        yield


def _cuts(length: int, steps: int = _STEPS) -> list[tuple[int, int]]:
    step = max(-(-length // steps), 1)
    return [(start, min(start + step, length)) for start in range(0, length, step)]


def _product_reversed(func: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return func(a.flip(-1), b.flip(-2 if b.dim() > 1 else 0))  # type: ignore[no-any-return]


def _added(product: Callable[..., torch.Tensor], plain: Any) -> Callable[..., torch.Tensor]:
    """Return a handler of addmm, addmv or baddbmm from a handler of the product: beta x c + alpha x (a @ b)."""

    def added(
        func: Any, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
    ) -> torch.Tensor:
        del func
        return beta * c + alpha * product(plain, a, b)

    return added


def _sum_reversed(func: Any, x: torch.Tensor, dims: Any = None, *rest: Any, **options: Any) -> torch.Tensor:
    along = _dims(x, dims)
    dim_arguments = () if dims is None else (dims,)
    return func(x.flip(along) if along else x, *dim_arguments, *rest, **options)  # type: ignore[no-any-return]


def _sum_in_turn(  # the order of aten's parameters
    func: Any,
    x: torch.Tensor,
    dims: Any = None,
    keepdim: bool = False,  # noqa: FBT001, FBT002
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    along = _dims(x, dims)
    converted = x if dtype is None else x.to(dtype)
    if not along or not converted.is_floating_point():
        rest = () if dims is None else (dims, keepdim)
        return func(x, *rest, dtype=dtype)  # type: ignore[no-any-return]
    wide = _in_fp32(converted)
    flat = wide.movedim(along, list(range(-len(along), 0))).flatten(-len(along))
    if wide.dtype == torch.float32 and wide.numel() <= MOST_ELEMENTS:
        total = accumulated(flat)
    else:
        total = torch.zeros(flat.shape[:-1], dtype=wide.dtype, device=x.device)
        for start, end in _cuts(flat.shape[-1]):
            total = total + flat[..., start:end].sum(-1)
    if func in (aten.mean.default, aten.mean.dim):
        total = total / flat.shape[-1]
    total = total.to(converted.dtype)
    return total.reshape([1 if dim in along else size for dim, size in enumerate(x.shape)]) if keepdim else total


def _in_fp32(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of half precision in fp32: sums have fp32 accumulators. Other tensors return unchanged."""
    return tensor.float() if tensor.dtype in _HALF else tensor


def _dims(x: torch.Tensor, dims: Any) -> list[int]:
    every = list(range(x.dim()))
    return [every[dim] for dim in dims] if dims else every


def _convolution_reversed(
    func: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,  # noqa: FBT001 - aten's order
) -> torch.Tensor:  # fmt: skip
    rest = (bias, stride, padding, dilation, transposed, output_padding, groups)
    if groups != 1:
        return func(x, weight, *rest)  # type: ignore[no-any-return]
    return func(x.flip(1), weight.flip(0 if transposed else 1), *rest)  # type: ignore[no-any-return]


def product_handlers(product: Callable[..., torch.Tensor]) -> dict[Any, Callable[..., Any]]:
    """Return handlers of all products of matrices and vectors from a handler of a plain product."""
    return {
        **dict.fromkeys((aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default), product),
        aten.addmm.default: _added(product, aten.mm.default),
        aten.addmv.default: _added(product, aten.mv.default),
        aten.baddbmm.default: _added(product, aten.bmm.default),
    }


def _handlers(
    product: Callable[..., torch.Tensor], total: Callable[..., torch.Tensor], convolution: Callable[..., torch.Tensor]
) -> dict[Any, Callable[..., Any]]:
    return {
        **product_handlers(product),
        aten.sum.default: total,
        aten.sum.dim_IntList: total,
        aten.mean.default: total,
        aten.mean.dim: total,
        aten.convolution.default: convolution,
    }


_REVERSED = {**_handlers(_product_reversed, _sum_reversed, _convolution_reversed), **products.REVERSED}


def _one_accumulator(draw: int) -> dict[Any, Callable[..., Any]]:
    """Return handlers with one fp32 accumulator for each sum, rounded once to the dtype of the result.

    Rounding of products is drawn, with the seed `draw`. Draw 0 adds up sums term by term; later draws draw the rounding
    of sums too.
    """
    generator = generators(draw)

    def drawn(total: torch.Tensor, squares: torch.Tensor, terms: int) -> torch.Tensor:
        return total + single_accumulator.rounding(total, squares, terms, generator(total.device))

    def product(func: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if _in_fp32(a).dtype != torch.float32:
            return func(a, b)  # type: ignore[no-any-return]
        wide_a, wide_b = _in_fp32(a), _in_fp32(b)
        return drawn(func(wide_a, wide_b), func(wide_a * wide_a, wide_b * wide_b), a.shape[-1]).to(a.dtype)

    def convolution(
        func: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
        transposed: bool, output_padding: Any, groups: int,  # noqa: FBT001 - aten's order
    ) -> torch.Tensor:  # fmt: skip
        rest = (stride, padding, dilation, transposed, output_padding, groups)
        if _in_fp32(x).dtype != torch.float32:
            return func(x, weight, bias, *rest)  # type: ignore[no-any-return]
        terms = single_accumulator.products_in_sum(weight, transposed=transposed, groups=groups)
        wide, kernel = _in_fp32(x), _in_fp32(weight)
        added = None if bias is None else _in_fp32(bias)
        total = func(wide, kernel, added, *rest)
        return drawn(total, func(wide * wide, kernel * kernel, None, *rest), terms).to(x.dtype)

    def total(func: Any, x: torch.Tensor, dims: Any = None, *rest: Any, **options: Any) -> torch.Tensor:
        along, wide = _dims(x, dims), _in_fp32(x)
        if not draw or not along or wide.dtype != torch.float32 or options.get("dtype") is not None:
            return _sum_in_turn(func, x, dims, *rest, **options)
        terms, dim_arguments = math.prod(x.shape[dim] for dim in along), () if dims is None else (dims, *rest)
        parts = terms if func in (aten.mean.default, aten.mean.dim) else 1
        sums, squares = (func(values, *dim_arguments, **options) * parts for values in (wide, wide.square()))
        return (drawn(sums, squares, terms) / parts).to(x.dtype)

    def running_sum(func: Any, x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
        converted = x if dtype is None else x.to(dtype)
        wide = _in_fp32(converted)
        if wide.dtype != torch.float32 or not wide.dim() or wide.numel() > MOST_ELEMENTS:
            return func(x, dim, dtype=dtype)  # type: ignore[no-any-return]
        return running(wide.movedim(dim, -1)).movedim(-1, dim).to(converted.dtype)

    sums = _handlers(product, total, convolution)
    return {**sums, aten.cumsum.default: running_sum, **products.IN_ONE_ACCUMULATOR}
