"""PyTorch operations of several steps, written out: softmax, norms, variances, losses.

A kernel rounds after each step. PyTorch computes such an operation in one call, so a dispatch mode sees only its
result. Inside a mode, the written-out form shows all steps to the mode. `NAIVE` has the formulas of textbooks in place
of PyTorch's protected ones: exp(x) - 1 for expm1, log(1 + x) for log1p, 1 / (1 + exp(-x)) for the logistic function,
1 - 2 / (exp(2 x) + 1) for tanh, and Winograd's products of 4 x 4 tiles for convolutions by 3 x 3 weights, as in cuDNN.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

aten = torch.ops.aten
_SOFTPLUS_LIMIT = 20.0
_MEAN = 1
"""aten's number of the reduction; 0 is none, 2 the sum."""


class WrittenOut:
    """Written-out forms of operations, for one dispatch mode. A form may call the operation itself."""

    def __init__(self, forms: Mapping[Any, Callable[..., Any]]) -> None:
        """Use the forms of `forms`, by operation."""
        self._forms = forms
        self._as_is: set[Any] = set()

    def has(self, func: Any) -> bool:
        """Return whether the operation has a form, outside of this form."""
        return func in self._forms and func not in self._as_is

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run the form of an operation. Inside, calls of the operation are not written out."""
        self._as_is.add(func)
        try:
            return self._forms[func](func, *args, **kwargs)
        finally:
            self._as_is.discard(func)


def _softmax(_: Any, x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:  # noqa: FBT001 - aten's order
    raised = (_to_compute_dtype(x, half_to_float=half_to_float) - x.amax(dim, keepdim=True)).exp()
    return (raised / raised.sum(dim, keepdim=True)).to(_result_dtype(x, half_to_float=half_to_float))


def _log_softmax(_: Any, x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:  # noqa: FBT001
    shifted = _to_compute_dtype(x, half_to_float=half_to_float) - x.amax(dim, keepdim=True)
    return (shifted - shifted.exp().sum(dim, keepdim=True).log()).to(_result_dtype(x, half_to_float=half_to_float))


def _to_compute_dtype(x: torch.Tensor, *, half_to_float: bool) -> torch.Tensor:
    return x.float() if half_to_float or x.dtype in (torch.float16, torch.bfloat16) else x


def _result_dtype(x: torch.Tensor, *, half_to_float: bool) -> torch.dtype:
    return torch.float32 if half_to_float else x.dtype


def _moments(x: torch.Tensor, dims: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    mean = x.mean(dims, keepdim=True)
    away = x - mean
    return mean, (away * away).mean(dims, keepdim=True)


def _layer_norm(
    _: Any, x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    mean, variance = _moments(wide, list(range(x.dim() - len(shape), x.dim())))
    scale = (variance + eps).rsqrt()
    out = (wide - mean) * scale
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias).to(x.dtype), mean, scale


def _group_norm(
    _: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
    batch: int, channels: int, _pixels: int, groups: int, eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    wide = (x.float() if x.dtype in (torch.float16, torch.bfloat16) else x).reshape(batch, groups, -1)
    mean, variance = _moments(wide, [2])
    scale = (variance + eps).rsqrt()
    out = ((wide - mean) * scale).reshape(x.shape)
    along = (1, channels, *(1,) * (x.dim() - 2))
    out = out if weight is None else out * weight.reshape(along)
    out = out if bias is None else out + bias.reshape(along)
    return out.to(x.dtype), mean.reshape(batch, groups), scale.reshape(batch, groups)


def _batch_norm(
    func: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
    mean: torch.Tensor | None, variance: torch.Tensor | None, training: bool, momentum: float, eps: float,  # noqa: FBT001
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    plain = func(x, weight, bias, mean, variance, training, momentum, eps)  # updates the running statistics
    if not training and (mean is None or variance is None):
        return plain  # type: ignore[no-any-return]
    along = (1, x.shape[1], *(1,) * (x.dim() - 2))
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    if training:
        center, spread = _moments(wide, [dim for dim in range(x.dim()) if dim != 1])
    else:
        assert mean is not None and variance is not None  # noqa: S101, PT018 - for the type checker
        center, spread = mean.reshape(along), variance.reshape(along)
    out = (wide - center) * (spread + eps).rsqrt()
    out = out if weight is None else out * weight.reshape(along)
    out = out if bias is None else out + bias.reshape(along)
    return out.to(x.dtype), *plain[1:]


def _vector_norm(
    func: Any, x: torch.Tensor, order: float = 2, dim: Any = None, keepdim: bool = False,  # noqa: FBT001, FBT002
    *, dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    if order not in (1, 2) or not x.is_floating_point() or dtype is not None:
        return func(x, order, dim, keepdim, dtype=dtype)  # type: ignore[no-any-return]
    dims = list(range(x.dim())) if dim is None else dim
    return x.abs().sum(dims, keepdim=keepdim) if order == 1 else (x * x).sum(dims, keepdim=keepdim).sqrt()


def _norm(
    func: Any, x: torch.Tensor, order: float | None, dim: Any, keepdim: bool = False,  # noqa: FBT001, FBT002
) -> torch.Tensor:  # fmt: skip
    """Return the norm of `pairwise_distance` and of the losses with it; None is order 2."""
    exponent = 2.0 if order is None else order
    if exponent not in (1, 2) or not x.is_floating_point():
        return func(x, order, dim, keepdim)  # type: ignore[no-any-return]
    return _vector_norm(func, x, exponent, dim, keepdim)


def _variance(
    func: Any, x: torch.Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> torch.Tensor:
    dims = list(range(x.dim())) if dim is None else [axis % x.dim() for axis in dim]
    count = 1
    for axis in dims:
        count *= x.shape[axis]
    degrees = count - (1 if correction is None else correction)
    if degrees <= 0 or not x.is_floating_point():
        return func(x, dim, correction=correction, keepdim=keepdim)  # type: ignore[no-any-return]
    away = x - x.mean(dims, keepdim=True)
    variance = (away * away).sum(dims, keepdim=keepdim) / degrees
    return variance.sqrt() if func is aten.std.correction else variance


def _logsumexp(_: Any, x: torch.Tensor, dim: Any, keepdim: bool = False) -> torch.Tensor:  # noqa: FBT001, FBT002
    most = x.amax(dim, keepdim=True)
    most = torch.where(torch.isfinite(most), most, 0.0)
    result = (x - most).exp().sum(dim, keepdim=True).log() + most
    return result if keepdim else result.squeeze(dim)


def _mse_loss(_: Any, x: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN) -> torch.Tensor:
    away = x - target
    return _reduced(away * away, reduction)


def _smooth_l1_loss(
    _: Any, x: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN, beta: float = 1.0
) -> torch.Tensor:
    away = (x - target).abs()
    return _reduced(torch.where(away < beta, 0.5 * away * away / beta, away - 0.5 * beta), reduction)


def _huber_loss(
    _: Any, x: torch.Tensor, target: torch.Tensor, reduction: int = _MEAN, delta: float = 1.0
) -> torch.Tensor:
    away = (x - target).abs()
    return _reduced(torch.where(away <= delta, 0.5 * away * away, delta * (away - 0.5 * delta)), reduction)


def _reduced(losses: torch.Tensor, reduction: int) -> torch.Tensor:
    return losses if reduction == 0 else losses.mean() if reduction == _MEAN else losses.sum()


COMPOSITES: Mapping[Any, Callable[..., Any]] = {
    aten._softmax.default: _softmax,  # noqa: SLF001 - the name of the operation
    aten._log_softmax.default: _log_softmax,  # noqa: SLF001
    aten.native_layer_norm.default: _layer_norm,
    aten.native_group_norm.default: _group_norm,
    aten.native_batch_norm.default: _batch_norm,
    aten.linalg_vector_norm.default: _vector_norm,
    aten.norm.ScalarOpt_dim: _norm,
    aten.var.correction: _variance,
    aten.std.correction: _variance,
    aten.logsumexp.default: _logsumexp,
    aten.mse_loss.default: _mse_loss,
    aten.smooth_l1_loss.default: _smooth_l1_loss,
    aten.huber_loss.default: _huber_loss,
}
"""Written-out forms by operation. Each gets the operation itself and the operation's arguments."""


def _elu(_: Any, x: torch.Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> torch.Tensor:
    return torch.where(x > 0, x * scale, alpha * scale * ((x * input_scale).exp() - 1))


def _softplus(_: Any, x: torch.Tensor, beta: float = 1, threshold: float = _SOFTPLUS_LIMIT) -> torch.Tensor:
    return torch.where(x * beta > threshold, x, (1 + (x * beta).exp()).log() / beta)


def _tanh(func: Any, x: torch.Tensor) -> torch.Tensor:
    """Return tanh by an exponential, as in Triton without a tanh. Kernels in half precision compute in fp32."""
    if not x.is_floating_point():
        return func(x)  # type: ignore[no-any-return]
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (1 - 2 / ((2 * wide).exp() + 1)).to(x.dtype)


_OF_TILE = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
_OF_WEIGHT = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
_OF_OUTPUT = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))
"""Transforms of F(4x4, 3x3): Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015, section 4.3."""
_TILE = 4


def _winograd(
    func: Any, x: torch.Tensor, weight: torch.Tensor, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,  # noqa: FBT001 - aten's order
) -> torch.Tensor:  # fmt: skip
    steps = {*stride, *dilation, groups}
    if transposed or steps != {1} or x.dim() != 4 or weight.shape[2:] != (3, 3) or x.dtype != torch.float32:
        return func(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)  # type: ignore[no-any-return]
    of_tile, of_weight, of_output = (
        torch.tensor(matrix, dtype=x.dtype, device=x.device) for matrix in (_OF_TILE, _OF_WEIGHT, _OF_OUTPUT)
    )
    above, left = padding if len(padding) == 2 else (padding[0], padding[0])
    height, width = x.shape[2] + 2 * above - 2, x.shape[3] + 2 * left - 2
    rows, columns = -(-height // _TILE), -(-width // _TILE)
    room = (left, left + columns * _TILE - width, above, above + rows * _TILE - height)
    tiles = torch.nn.functional.pad(x, room).unfold(2, _TILE + 2, _TILE).unfold(3, _TILE + 2, _TILE)
    values, weights = of_tile @ tiles @ of_tile.T, of_weight @ weight @ of_weight.T
    products = torch.einsum("nchwij,ocij->nohwij", values, weights)
    outputs = (of_output @ products @ of_output.T).transpose(3, 4).flatten(4).flatten(2, 3)
    outputs = outputs[:, :, :height, :width]
    return outputs.contiguous() if bias is None else outputs + bias[:, None, None]


NAIVE: Mapping[Any, Callable[..., Any]] = {
    aten.expm1.default: lambda _, x: x.exp() - 1,
    aten.log1p.default: lambda _, x: (1 + x).log(),
    aten.elu.default: _elu,
    aten.softplus.default: _softplus,
    aten.sigmoid.default: lambda _, x: 1 / (1 + (-x).exp()),
    aten.silu.default: lambda _, x: x / (1 + (-x).exp()),
    aten.rsqrt.default: lambda _, x: 1 / x.sqrt(),
    aten.tanh.default: _tanh,
    aten.convolution.default: _winograd,
}
"""Textbook formulas by operation, in fp32 as accurate as the formula's conditioning allows."""
