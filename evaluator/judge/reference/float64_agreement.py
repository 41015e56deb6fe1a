"""Whether float64 computed what the reference computes, as far as its results show."""

import torch

from evaluator.judge.tensors.pytree import is_number, leaves
from evaluator.protocol import model_call

_NEAR = 0.1
_NEAR_ELEMENTS = 1 << 18
"""How many elements, spread evenly, tell whether float64 computed the same thing."""


def same_function(exact: model_call.Result, honest: model_call.Result) -> bool:
    """Say whether float64 computed the same thing: same structure and shapes, and close to the honest result.

    A reference that draws random numbers, or casts by dtype, gives something else in float64.
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
        if is_number(wide) != is_number(plain):
            return False
        if is_number(plain) and not near(torch.tensor(wide).double(), torch.tensor(plain)):
            return False
    return True


def near(wide: torch.Tensor, plain: torch.Tensor) -> bool:
    """Say whether a tensor of float64 has the shape of the `plain` one, and is close to it as a whole."""
    if wide.shape != plain.shape:
        return False
    if not (plain.is_floating_point() or plain.is_complex()):
        return True
    if wide.dtype not in (torch.float64, torch.complex128):  # the reference casts; its result has lost what was gained
        return False
    if plain.numel() == 0:
        return True
    step = max(wide.numel() // _NEAR_ELEMENTS, 1)
    wide, plain = wide.reshape(-1)[::step], plain.reshape(-1)[::step]
    plain = plain.to(wide.dtype)
    both = torch.isfinite(wide) & torch.isfinite(plain)
    # Without an index, for which the host would wait: this is asked of every block of a large output.
    zero = torch.zeros_like(wide)
    distance_square = torch.where(both, wide - plain, zero).abs().square().sum()
    square = torch.where(both, wide, zero).abs().square().sum()
    # Rounding in the problem's own precision stays far below a tenth of the outputs' size.
    return bool(distance_square <= _NEAR**2 * square)
