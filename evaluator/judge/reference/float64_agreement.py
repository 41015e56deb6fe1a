"""Agreement of the reference in float64 with the reference in the problem's precision, judged by results."""

import math

import torch

from evaluator.judge.formats.elements import elements, format_of
from evaluator.protocol import model_call
from evaluator.protocol.pytree import leaves

_NEAR = 0.1
_NEAR_ELEMENTS = 1 << 18
"""Evenly spaced elements for the comparison."""


def same_function(exact: model_call.Result, honest: model_call.Result) -> bool:
    """Return whether float64 computed the same function: equal structure and shapes, and values near the plain result.

    A reference with random numbers, or with casts by dtype, computes another function in float64.
    """
    pairs = list(
        zip(leaves([exact.outputs, exact.gradients]), leaves([honest.outputs, honest.gradients]), strict=False)
    )
    if len(list(leaves(exact.outputs))) != len(list(leaves(honest.outputs))):
        return False
    for (wide_path, wide), (path, plain) in pairs:
        if wide_path != path or isinstance(wide, torch.Tensor) != isinstance(plain, torch.Tensor):
            return False
        if isinstance(wide, torch.Tensor) and not near(wide, plain):
            return False
        if isinstance(wide, float) != isinstance(plain, float):
            return False
        if isinstance(plain, float) and not near(torch.tensor(wide).double(), torch.tensor(plain)):
            return False
    return True


def near(wide: torch.Tensor, plain: torch.Tensor) -> bool:
    """Return whether a float64 tensor has the shape of `plain`, and as a whole is close to `plain`."""
    if wide.shape != plain.shape:
        return False
    if not (plain.is_floating_point() or plain.is_complex()):
        return True
    if (form := format_of(plain.dtype)) is not None:
        return wide.dtype == plain.dtype and near(elements(wide, form).values, elements(plain, form).values)
    if wide.dtype not in (torch.float64, torch.complex128):  # the reference casts: the extra precision is lost
        return False
    if plain.numel() == 0:
        return True
    step = max(wide.numel() // _NEAR_ELEMENTS, 1)
    wide, plain = wide.reshape(-1)[::step], plain.reshape(-1)[::step]
    distance_square, square = _squares(wide, plain.to(wide.dtype))
    # Rounding in the problem's own precision stays far below a tenth of the outputs' size.
    return bool(distance_square <= _NEAR**2 * square)


def _squares(wide: torch.Tensor, plain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the squared distance of two vectors, and the squared size of the first, where both are finite."""
    distance = wide - plain
    # On the CPU, products are much faster than masks, and show NaN and infinity themselves. On a GPU, the host would
    # wait for the products, and large outputs call `near` for every block.
    if wide.device.type == "cpu" and not wide.is_complex():
        products = distance @ distance, wide @ wide
        if all(math.isfinite(float(product)) for product in products):
            return products
    both = torch.isfinite(wide) & torch.isfinite(plain)
    zero = torch.zeros_like(wide)
    distance, size = torch.where(both, distance, zero), torch.where(both, wide, zero)
    return distance.abs().square().sum(), size.abs().square().sum()
