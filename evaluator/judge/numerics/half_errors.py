"""Size and direction of the errors of a half-precision output that is within its tolerance.

The tolerance is a bound for each element. A reference of several operations rounds several times, and its tolerance has
room for operands in fewer bits, and for a factor. Neither is a rounding: operands in int8 have four times the errors of
a rounded result in the mean, and roundings to nearest go in both directions.
"""

import torch

from evaluator.judge.compare.tolerance import HALF
from evaluator.judge.numerics.reduced_precision import ENOUGH
from evaluator.judge.numerics.rounded_reference import Errors

_STEPS = 4
"""Number of largest errors left out: at a step, as of `round`, a rounding makes a large error of an element."""
_TIMES = 2.0
"""An honest answer's errors beside the plain reference's. Attention in three operations, each rounded, has 1.9 times
the errors of PyTorch's single one."""
_ROUNDING = 1 / 4
"""Root mean square of one rounding to nearest, in units of the last place: at most 1/4 (measured 0.20 to 0.23)."""
_FLOOR = 1 / 8
"""Units in the last place that are no evidence, as in a tolerance."""


def fault_in_half(errors: Errors, dtype: torch.dtype) -> str | None:
    """Return why the errors of a sample are none of honest half precision; None if they may be.

    Errors count relative to the larger of the element and the sample's root mean square, in units of the dtype's
    epsilon. Fewer than `ENOUGH` errors decide nothing.
    """
    if dtype not in HALF:
        return None
    actual, exact, honest = (side.double() for side in errors[1:])
    finite = torch.isfinite(actual) & torch.isfinite(exact) & torch.isfinite(honest)
    actual, exact, honest = actual[finite], exact[finite], honest[finite]
    if actual.numel() < ENOUGH or not bool(exact.any()):
        return None
    scale = torch.maximum(exact.abs(), exact.square().mean().sqrt()) * torch.finfo(dtype).eps
    error, of_reference = (actual - exact) / scale, (honest - exact) / scale
    usual_elements = error.abs().argsort()[:-_STEPS]
    error, of_reference, sign = error[usual_elements], of_reference[usual_elements], exact[usual_elements].sign()
    size, usual = _rms(error), max(_rms(of_reference), _ROUNDING)
    if size > _TIMES * usual + _FLOOR:
        return (
            f"its errors are {size:.2g} units in the last place (root mean square), and those of the reference "
            f"{_rms(of_reference):.2g}: operands or sums have fewer bits than the problem asks for"
        )
    drift, usual_drift = (float((values * sign).mean()) for values in (error, of_reference))
    if abs(drift) > _TIMES * abs(usual_drift) + _FLOOR:
        direction = "large" if drift > 0 else "small"
        return (
            f"its values are too {direction} by {abs(drift):.2g} units in the last place in the mean, and those of the "
            f"reference by {abs(usual_drift):.2g}: roundings to nearest go in both directions"
        )
    return None


def _rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())
