"""Honest ways to compute a reference in fp32, beyond the `SummationOrder`s that the tolerance is made from.

Those of half precision are in `half_precision`.

Each form is a context: inside, PyTorch's sums, products and functions are computed another way. Products and sums in
one accumulator are added up term by term here, and not drawn from a model.
"""

import contextlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.numerics.judged_answers import Answer
from evaluator.judge.numerics.arithmetic_modes import SummationOrder, in_order, product_handlers, with_handlers
from evaluator.judge.numerics.composites import COMPOSITES
from evaluator.judge.numerics.single_accumulator import LONGEST, running

aten = torch.ops.aten
Handlers = Mapping[Any, Callable[..., Any]]
Form = Callable[[], contextlib.AbstractContextManager[None]]
BLOCK = 32
_MOST_PRODUCTS = {"cpu": 1 << 27, "cuda": 1 << 36}
"""Limit of the products in a call that are added up term by term: half a second on either device."""
_MOST_ELEMENTS = 1 << 26
_LOG2_E, _LN_2 = 1.4426950408889634, 0.6931471805599453


def _in_turn(a: torch.Tensor, b: torch.Tensor, *, fused: bool) -> torch.Tensor:
    """Return a @ b with one accumulator for each element. A fused step rounds once, after the addition."""
    left, right = (each.double() for each in (a, b)) if fused else (a, b)
    total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device)
    for k in range(a.shape[-1]):
        total = (total + left[..., k : k + 1] * right[..., k : k + 1, :]).to(a.dtype)
    return total


def _blocked(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a @ b, one accumulator for tiles of `BLOCK` terms, each tile by PyTorch."""
    total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device)
    for start in range(0, a.shape[-1], BLOCK):
        total = total + torch.matmul(a[..., start : start + BLOCK], b[..., start : start + BLOCK, :])
    return total


def _shuffled(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return a @ b with the tiles of `_blocked` in random order, as by atomic additions."""
    order = _permutation(a.shape[-1], a.device)
    return _blocked(a[..., order], b[..., order, :])


def _permutation(count: int, device: torch.device) -> torch.Tensor:
    """Return a random order, drawn without the default generator, which a forward with dropout uses."""
    generator = torch.Generator(device).manual_seed(secrets.randbits(63))
    return torch.randperm(count, device=device, generator=generator)


def _products(way: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Handlers:
    """Return handlers of products. Too large products, and other dtypes than fp32, stay PyTorch's."""

    def product(func: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        b2 = b if b.dim() > 1 else b.unsqueeze(-1)
        most = _MOST_PRODUCTS[a.device.type] if 0 < a.shape[-1] <= LONGEST else 0
        if a.dtype != torch.float32 or a.numel() * b2.shape[-1] > most:
            return func(a, b)  # type: ignore[no-any-return]
        found = way(a if a.dim() > 1 else a.unsqueeze(0), b2)
        found = found if b.dim() > 1 else found.squeeze(-1)
        return found if a.dim() > 1 else found.squeeze(0)

    return product_handlers(product)


def _in_one(terms: torch.Tensor) -> torch.Tensor:
    return running(terms)[..., -1]


def _in_strides(terms: torch.Tensor) -> torch.Tensor:
    """Return sums as by a block of 256 threads: each adds every 256th term, and the partial sums follow."""
    return _in_one(torch.stack([_in_one(terms[..., start::256]) for start in range(min(256, terms.shape[-1]))], -1))


def _in_random_order(terms: torch.Tensor) -> torch.Tensor:
    return _in_one(terms[..., _permutation(terms.shape[-1], terms.device)])


def _sums(way: Callable[[torch.Tensor], torch.Tensor]) -> Handlers:
    def total(
        func: Any,
        x: torch.Tensor,
        dims: Any = None,
        keepdim: bool = False,  # noqa: FBT001, FBT002 - aten's order
        *,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        given = () if dims is None else (dims, keepdim)
        along = [dim % x.dim() for dim in dims] if dims else list(range(x.dim()))
        if not along or x.dtype != torch.float32 or dtype is not None or not 0 < x.numel() <= _MOST_ELEMENTS:
            return func(x, *given, dtype=dtype)  # type: ignore[no-any-return]
        terms = x.movedim(along, list(range(-len(along), 0))).flatten(-len(along))
        found = way(terms)
        found = found / terms.shape[-1] if func in (aten.mean.default, aten.mean.dim) else found
        kept = [1 if dim in along else size for dim, size in enumerate(x.shape)]
        return found.reshape(kept) if keepdim else found

    return dict.fromkeys((aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim), total)


def _one_pass(x: torch.Tensor, dims: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean, and the variance as the mean square minus the squared mean."""
    mean = x.mean(dims, keepdim=True)
    return mean, ((x * x).mean(dims, keepdim=True) - mean * mean).clamp(min=0)


def _layer_norm(
    _: Any, x: torch.Tensor, shape: Any, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mean, variance = _one_pass(x, list(range(x.dim() - len(shape), x.dim())))
    scale = (variance + eps).rsqrt()
    out = (x - mean) * scale
    out = out if weight is None else out * weight
    return out if bias is None else out + bias, mean, scale


def _group_norm(
    _: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
    batch: int, channels: int, _pixels: int, groups: int, eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    wide = x.reshape(batch, groups, -1)
    mean, variance = _one_pass(wide, [2])
    scale = (variance + eps).rsqrt()
    out, along = ((wide - mean) * scale).reshape(x.shape), (1, channels, *(1,) * (x.dim() - 2))
    out = out if weight is None else out * weight.reshape(along)
    return out if bias is None else out + bias.reshape(along), mean.reshape(batch, groups), scale.reshape(batch, groups)


def _batch_norm(
    func: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
    mean: Any, variance: Any, training: bool, momentum: float, eps: float,  # noqa: FBT001
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    plain = func(x, weight, bias, mean, variance, training, momentum, eps)  # updates the running statistics
    if not training:
        return plain  # type: ignore[no-any-return]
    along = (1, x.shape[1], *(1,) * (x.dim() - 2))
    center, spread = _one_pass(x, [dim for dim in range(x.dim()) if dim != 1])
    out = (x - center) * (spread + eps).rsqrt()
    out = out if weight is None else out * weight.reshape(along)
    return out if bias is None else out + bias.reshape(along), *plain[1:]


def _variance(
    func: Any, x: torch.Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    dims = list(range(x.dim())) if dim is None else [each % x.dim() for each in dim]
    count = int(torch.Size([x.shape[each] for each in dims]).numel())
    left = count - (1 if correction is None else correction)
    if left <= 0:
        return func(x, dim, correction=correction, keepdim=keepdim)
    found = _one_pass(x, dims)[1] * (count / left)
    found = found if keepdim else found.squeeze(dims)
    return found.sqrt() if func is aten.std.correction else found


_ONE_PASS = {
    aten.native_layer_norm.default: _layer_norm,
    aten.native_group_norm.default: _group_norm,
    aten.native_batch_norm.default: _batch_norm,
    aten.var.correction: _variance,
    aten.std.correction: _variance,
}


def _exp(x: torch.Tensor) -> torch.Tensor:
    """Return exp as `__expf` computes it: the product with log2 e is rounded in fp32."""
    return torch.exp2(x * _LOG2_E)


def _tanh(_: Any, x: torch.Tensor) -> torch.Tensor:
    raised = _exp(-2 * x.abs())
    return torch.copysign((1 - raised) / (1 + raised), x)


def _log(_: Any, x: torch.Tensor) -> torch.Tensor:
    """Return log with the documented errors of `__logf`: 2**-21.41 from 0.5 to 2, and a few ulp elsewhere."""
    found = torch.log2(x) * _LN_2
    return torch.where((x >= 0.5) & (x <= 2) & (x != 1), _off(x.log()), found)


def _cos(_: Any, x: torch.Tensor) -> torch.Tensor:
    """Return cos with the documented error of `__cosf`, 2**-21.41 up to pi."""
    found = x.cos()
    return torch.where(x.abs() <= torch.pi, _off(found), found)


def _off(values: torch.Tensor) -> torch.Tensor:
    """Return values with the largest error of the fast logarithm and cosine, of changing sign."""
    places = torch.arange(values.numel(), device=values.device).reshape(values.shape)
    return values + (places % 2 * 2 - 1) * 2.0**-21.41


_FAST: Handlers = {
    aten.exp.default: lambda _, x: _exp(x),
    aten.expm1.default: lambda _, x: _exp(x) - 1,
    aten.cosh.default: lambda _, x: (_exp(x) + _exp(-x)) / 2,
    aten.tanh.default: _tanh,
    aten.log.default: _log,
    aten.cos.default: _cos,
    aten.sigmoid.default: lambda _, x: (1 + _exp(-x)).reciprocal(),
    aten.silu.default: lambda _, x: x * (1 + _exp(-x)).reciprocal(),
    aten.rsqrt.default: lambda _, x: x.sqrt().reciprocal(),
}
"""Fast intrinsics within the errors of the CUDA C++ Programming Guide. Not `__sinf`: of an angle of 1e-3 it may keep 11
bits, by the documented error, and is refused there (docs/tolerance.md)."""


def by_context(form: Form) -> Answer:
    """Return the answer of the reference in the arithmetic of a context."""
    return lambda plan: plan.reference.altered(plan.inputs, plan.random_seed, plan.gradients, form())


def _altered(handlers: Handlers, written_out: Handlers = COMPOSITES) -> Form:
    return lambda: with_handlers(handlers, written_out)


UNSTABLE = "one-pass variance"
"""Cancels where the mean is many standard deviations: a failure is a property of the form."""
FORMS: dict[str, Form] = {
    "PyTorch": contextlib.nullcontext,
    **{order.value: (lambda order=order: in_order(order)) for order in SummationOrder},
    "term by term": _altered({**_products(lambda a, b: _in_turn(a, b, fused=False)), **_sums(_in_one)}),
    "term by term, fused": _altered({**_products(lambda a, b: _in_turn(a, b, fused=True)), **_sums(_in_one)}),
    "blocked": _altered({**_products(_blocked), **_sums(_in_strides)}),
    "random order": _altered({**_products(_shuffled), **_sums(_in_random_order)}),
    "fast intrinsics": _altered(_FAST),
    UNSTABLE: _altered({}, {**COMPOSITES, **_ONE_PASS}),
}
