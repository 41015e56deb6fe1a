"""Negative controls with wrong numbers: outputs off by steps, and cheaper sums.

Products are computed in fp32 and rounded once, to the dtype of the reference's result, as by a good kernel: the
operands, or the missing terms, are the only error.
"""

import contextlib
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import torch

from evaluator.judge.compare.limits import form_of
from evaluator.judge.numerics.arithmetic_modes import with_handlers
from evaluator.judge.numerics.composites import COMPOSITES
from evaluator.judge.tensors.number_formats import codes_at, elements
from evaluator.judge.tensors.pytree import Value
from evaluator.records import ElementFormat, Problem

_Answer = dict[str, Value]
ONE_IN = 128
"""Elements per changed element of an honest answer: half of the limit (`compare.steps`)."""


def off_by(problem: Problem, answer: _Answer, steps: int, one_in: int, *, fewest: int = 1) -> _Answer | None:
    """Return an answer with one of `one_in` elements `steps` steps off; None without an output in such a format.

    Outputs of less than `fewest` elements stay. So do scales of blocks: a step of a scale moves a whole block.
    """
    scales = {output_format.scales for output_format in problem.formats.outputs.values()}
    forms = {
        path: form
        for path, value in answer.items()
        if isinstance(value, torch.Tensor) and path not in scales and value.numel() >= fewest
        if (form := form_of(problem, path, value.dtype)) is not None
    }
    if not forms:
        return None
    return {**answer, **{path: _off(answer[path], form, steps, one_in) for path, form in forms.items()}}


def _off(codes: torch.Tensor, form: ElementFormat, steps: int, one_in: int) -> torch.Tensor:
    """Return codes with places moved towards zero, or away from a zero too near for the steps."""
    values, places = elements(codes, form)
    flat = places.reshape(-1).clone()
    # The last of each `one_in` elements: with the first, a rest of a few elements had one of its own.
    off = slice(min(one_in, flat.numel()) - 1, None, one_in)
    chosen = flat[off]
    flat[off] = torch.where(chosen.abs() >= steps, chosen - chosen.sign() * steps, chosen + steps)
    changed = codes_at(flat.reshape(places.shape), form).view(torch.uint8)
    if not bool(values.isfinite().all()):  # NaN and infinity have no neighbours. Packed formats have neither.
        changed = torch.where(values.isfinite(), changed, codes.view(torch.uint8))
    return changed.view(codes.dtype)


aten = torch.ops.aten
_GROUP = 32
_EIGHTHS = 8
"""Shorter sums keep all terms."""
_LARGEST = {8: 127, 4: 7}
"""Largest code of an integer format, by bits."""
_MEAN = 1
"""Number of the reduction `mean` of a loss."""
_LOSSES: Mapping[Any, int] = {
    aten.mse_loss.default: 2,
    aten.smooth_l1_loss.default: 2,
    aten.huber_loss.default: 2,
    aten.soft_margin_loss.default: 2,
    aten.binary_cross_entropy.default: 3,
    aten.nll_loss_forward.default: 3,
}
"""Losses of an input and a target, with the place of their reduction among the arguments."""
_WRITTEN_OUT = {
    func: COMPOSITES[func]
    for func in (
        *(aten._softmax.default, aten._log_softmax.default),  # noqa: SLF001 - the names of the operations
        *(aten.native_layer_norm.default, aten.native_group_norm.default, aten.native_batch_norm.default),
    )
}
"""Operations with sums of their own, whose forms compute in fp32 at least."""
_SUMS = (aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim)


class Operands(StrEnum):
    """Formats of the operands of a product."""

    BF16 = "bf16"
    FP8 = "fp8"  # e4m3, with a scale for each tensor
    INT8 = "int8"  # with a scale for each row of the first operand, and for each column of the second
    INT4 = "int4"  # the second operand alone, with a scale for each 32 terms, as in kernels with weights in int4


class Effect:
    """Whether a mode has changed something: if not, a control with the mode computes what the reference computes."""

    def __init__(self) -> None:
        """Begin without a change."""
        self.changed = False

    def of(self, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        """Return the tensor `after`, and note whether it differs from `before`."""
        self.changed = self.changed or not torch.equal(before, after)
        return after


def in_operands(tensor: torch.Tensor, to: Operands, dim: int, *, is_second: bool) -> torch.Tensor:
    """Return an operand in fp32, rounded to a format. `dim` has the terms of each sum.

    >>> in_operands(torch.tensor([[1.0, 0.3, -7.0]]), Operands.INT4, 1, is_second=True).tolist()
    [[1.0, 0.0, -7.0]]
    """
    wide = _wide(tensor)
    match to:
        case Operands.BF16:
            return wide.bfloat16().to(wide.dtype)
        case Operands.FP8:
            scale = _scale(wide.abs().amax() if wide.numel() else wide.sum(), torch.finfo(torch.float8_e4m3fn).max)
            return (wide / scale).to(torch.float8_e4m3fn).to(wide.dtype) * scale
        case Operands.INT8:
            return _in_integers(wide, dim, 8, wide.shape[dim])
        case Operands.INT4:
            return _in_integers(wide, dim, 4, _GROUP) if is_second else wide


def _scale(largest: torch.Tensor, of_format: float) -> torch.Tensor:
    """Return the scale for a largest magnitude; 1 for zeros, and for infinity and NaN, which stay."""
    return torch.where(largest.isfinite() & (largest > 0), largest / of_format, 1.0)


def _in_integers(wide: torch.Tensor, dim: int, bits: int, group: int) -> torch.Tensor:
    """Return a tensor rounded to integers with a scale for each `group` elements along `dim`."""
    moved = wide.movedim(dim, -1)
    terms = moved.shape[-1]
    if not wide.numel() or terms == 1:  # A single term is its own scale.
        return wide
    padded = torch.nn.functional.pad(moved, (0, -terms % group))
    groups = padded.reshape(*padded.shape[:-1], -1, group)
    scale = _scale(groups.abs().amax(-1, keepdim=True), _LARGEST[bits])
    coarse: torch.Tensor = (groups / scale).round() * scale
    return coarse.flatten(-2)[..., :terms].movedim(-1, dim)


def with_operands_in(to: Operands, effect: Effect) -> contextlib.AbstractContextManager[None]:
    """Context with operands of products and convolutions rounded to a format."""

    def rounded(tensor: torch.Tensor, dim: int, *, is_second: bool) -> torch.Tensor:
        return effect.of(_wide(tensor), in_operands(tensor, to, dim, is_second=is_second))

    def operands(a: torch.Tensor, b: torch.Tensor, along: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
        return rounded(a, along[0], is_second=False), rounded(b, along[1], is_second=True)

    return with_handlers(_of_products(operands))


def with_terms_left_out(effect: Effect, *, eighths: int = _EIGHTHS - 1) -> contextlib.AbstractContextManager[None]:
    """Context with terms left out of each sum, product and mean loss, of which `eighths` of 8 remain, scaled up."""

    def operands(a: torch.Tensor, b: torch.Tensor, along: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
        return effect.of(_wide(a), _scaled_rest(_wide(a), along[0], eighths)), _wide(b)

    def total(func: Any, x: torch.Tensor, dims: Any = None, *rest: Any, **options: Any) -> torch.Tensor:
        arguments = () if dims is None else (dims, *rest)
        along = [dim for dim in (dims or range(x.dim())) if x.shape[dim] >= _EIGHTHS]
        if not along or not x.is_floating_point():
            return func(x, *arguments, **options)  # type: ignore[no-any-return]
        fewer = effect.of(_wide(x), _scaled_rest(_wide(x), along[-1], eighths))
        return func(fewer, *arguments, **options).to(options.get("dtype") or x.dtype)  # type: ignore[no-any-return]

    def loss(func: Any, x: torch.Tensor, target: torch.Tensor, *rest: Any, **options: Any) -> Any:
        index = _LOSSES[func] - 2
        reduction = rest[index] if len(rest) > index else options.get("reduction", _MEAN)
        if reduction != _MEAN or not x.dim() or x.shape[0] < _EIGHTHS or x.shape[0] != target.shape[0]:
            return func(x, target, *rest, **options)
        effect.changed = True
        remaining = _kept_terms(x.shape[0], eighths, x.device)
        return func(x[remaining], target[remaining], *rest, **options)

    losses = dict.fromkeys(_LOSSES, loss)
    return with_handlers({**_of_products(operands), **dict.fromkeys(_SUMS, total), **losses}, _WRITTEN_OUT)


def _kept_terms(terms: int, eighths: int, device: torch.device) -> torch.Tensor:
    """Return the places of the terms that remain: the first `eighths` of 8 consecutive ones."""
    places = torch.arange(terms, device=device)
    return places[places % _EIGHTHS < eighths]


def _scaled_rest(wide: torch.Tensor, dim: int, eighths: int) -> torch.Tensor:
    """Return a tensor with elements along `dim` set to 0, and the rest scaled up; too short ones stay."""
    terms = wide.shape[dim]
    if terms < _EIGHTHS:
        return wide
    factors = torch.zeros(terms, device=wide.device)
    places = _kept_terms(terms, eighths, wide.device)
    factors[places] = terms / len(places)
    factors = factors.reshape([terms if at == dim % wide.dim() else 1 for at in range(wide.dim())])
    return torch.where(factors == 0, 0, wide * factors)  # infinity times 0 is NaN


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in fp32, or in fp64 if given so."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


_Operands = Callable[[torch.Tensor, torch.Tensor, tuple[int, int]], tuple[torch.Tensor, torch.Tensor]]


def _of_products(operands: _Operands) -> dict[Any, Callable[..., Any]]:
    """Return handlers of products and convolutions with other operands, given the dimensions with the terms.

    Products of other dtypes than floating point stay as they are.
    """

    def first_two(func: Any, a: torch.Tensor, b: torch.Tensor) -> Any:
        if not a.is_floating_point():
            return func(a, b)
        return func(*operands(a, b, (-1, -2 if b.dim() > 1 else 0))).to(a.dtype)

    def last_two(func: Any, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **options: Any) -> Any:
        if not a.is_floating_point():
            return func(c, a, b, **options)
        return func(_wide(c), *operands(a, b, (-1, -2 if b.dim() > 1 else 0)), **options).to(a.dtype)

    def convolution(
        func: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
        transposed: bool, *rest: Any,  # noqa: FBT001 - aten's order
    ) -> Any:  # fmt: skip
        changed = operands(x, weight, (1, 0 if transposed else 1))
        wide = None if bias is None else _wide(bias)
        return func(*changed, wide, stride, padding, dilation, transposed, *rest).to(x.dtype)

    both_first = (aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default)
    both_last = (aten.addmm.default, aten.baddbmm.default, aten.addmv.default)
    return {
        **dict.fromkeys(both_first, first_two),
        **dict.fromkeys(both_last, last_two),
        aten.convolution.default: convolution,
    }
