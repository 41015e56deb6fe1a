"""Detection of reduced precision by the size and the direction of errors.

`outsized`: slices of fp32 outputs that depend on cancelling rows. The errors of fp32 in any order of summation lie far
below the errors of operands in TF32, fp16 or bf16: measured on products of normal values, one fp32 accumulator over n
terms is off by 2e-8 sqrt(n) of the result's size (6e-6 for 131072 terms), operands in TF32 or fp16 by 3e-4, in bf16 by
2e-3, and one operand split into two fp16 parts by 2e-4, for every n. Scaled operands and stochastic rounding change the
direction of these errors, and not their size. Three products of operands split into two bf16 parts are off by 4e-6,
which one fp32 accumulator reaches at 60000 terms: such a product counts as fp32. `benchmarks/numerics/error_sizes.py`
measures these sizes.

`fault_in_half`: half-precision outputs within the tolerance. A reference of several operations rounds several times,
and its tolerance has room for operands in fewer bits, and for a factor. Neither is a rounding: operands in int8 have
four times the errors of a rounded result in the mean, and roundings to nearest go in both directions.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.judge.compare.tolerance import HALF
from evaluator.judge.numerics.arithmetic_modes import Format, SummationOrder, in_order
from evaluator.judge.numerics.reduced_precision import ENOUGH
from evaluator.judge.numerics.rounded_reference import (
    CallErrors,
    Errors,
    values_of,
    with_rounded_inputs,
    with_rounded_operands,
)

LEAST_ERRORS = 32
"""Fewer errors decide nothing: the root mean square of 32 normal errors is within a third of the true one."""
_ENOUGH_ERRORS = 1024
_STEPS = 4
"""Number of largest errors left out: in `round(x)` an honest rounding makes a step of an element near a tie. A step
exceeds a thousand roundings, and fewer bits change all elements."""
_OF_FP32 = 8.0
"""Errors up to this multiple of another order's errors are those of fp32."""
_OF_COARSER = 0.25
"""Errors below this part of the coarser format's errors are not those of the format."""
_UNITS = 16.0
"""Errors up to as many units in the last place are those of fp32's own functions (`compare.tolerance`)."""


class Outsized(NamedTuple):
    """Output with errors too large for fp32.

    `error`, `coarser` and `fp32` are root mean squares: of the output's errors, of the coarser format's, and of fp32's
    in any order of summation, relative to the root mean square of the exact values.
    """

    path: str
    format: Format
    error: float
    coarser: float
    fp32: float


class _Pool(NamedTuple):
    """Errors of an output over several calls: the submission's, the plain reference's, and the exact values."""

    error: torch.Tensor
    honest: torch.Tensor
    exact: torch.Tensor


def outsized(calls: Sequence[CallErrors], to: Format) -> Outsized | None:
    """Return an output whose errors are closer to those of `to` than to those of fp32; None without a match.

    An honest answer usually costs no reference call. A suspicious answer costs at most six for each of the calls.

    Raises:
        MemoryError: the reference in `to`, or in another order, takes more memory than there is.
    """
    for path in {path: None for call in calls for path in call.outputs}:
        asked = _enough([call for call in calls if path in call.outputs], path)
        pool = _pool([call.outputs[path] for call in asked])
        if pool.error.numel() < LEAST_ERRORS:
            continue
        units = _UNITS * torch.finfo(torch.float32).eps * _rms(pool.exact)
        error, fp32 = _rms(_without_steps(pool.error)), _rms(pool.honest)
        if error <= _OF_FP32 * fp32 + units:
            continue
        with out_of_memory():
            coarser = _coarser(asked, path, to)
            if error <= _OF_COARSER * coarser + units:
                continue
            fp32 = max(fp32, _other_orders(asked, path))
        if coarser and error > _OF_FP32 * fp32 + units:
            size = _rms(pool.exact) or 1.0
            return Outsized(path, to, error / size, coarser / size, fp32 / size)
    return None


def _enough(calls: list[CallErrors], path: str) -> list[CallErrors]:
    """Return as many calls as give `_ENOUGH_ERRORS` errors, or all."""
    count = 0
    for number, call in enumerate(calls):
        count += len(call.outputs[path].exact)
        if count >= _ENOUGH_ERRORS:
            return calls[: number + 1]
    return calls


def _pool(outputs: Sequence[Errors]) -> _Pool:
    return _Pool(
        torch.cat([errors.actual - errors.exact for errors in outputs]),
        torch.cat([errors.honest - errors.exact for errors in outputs]),
        torch.cat([errors.exact for errors in outputs]),
    )


def _coarser(calls: Sequence[CallErrors], path: str, to: Format) -> float:
    """Return the size of the errors of operands in a format, or of inputs if the reference has no products."""
    for way in (with_rounded_operands, with_rounded_inputs):
        size = _size([(call, way(call.again, to, {path: call.outputs[path]})) for call in calls], path)
        if size:
            return size
    return 0.0


def _other_orders(calls: Sequence[CallErrors], path: str) -> float:
    """Return the largest size of fp32's errors in any order of summation."""
    largest = 0.0
    for order in SummationOrder:
        outputs_of_calls = []
        for call in calls:
            plain = call.again()._replace(in_float64=False)
            outputs_of_calls.append((call, values_of(plain, None, in_order(order), {path: call.outputs[path]})))
        largest = max(largest, _size(outputs_of_calls, path))
    return largest


def _size(outputs_of_calls: Sequence[tuple[CallErrors, dict[str, torch.Tensor]]], path: str) -> float:
    parts = [values[path] - call.outputs[path].exact for call, values in outputs_of_calls if path in values]
    return _rms(torch.cat(parts)) if parts else 0.0


def _without_steps(errors: torch.Tensor) -> torch.Tensor:
    finite = errors[torch.isfinite(errors)]
    return finite[finite.abs().argsort()[:-_STEPS]]


def _rms(values: torch.Tensor) -> float:
    """Return the root mean square of the finite values; 0 without any."""
    finite = values[torch.isfinite(values)]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


_TIMES = 2.0
"""An honest answer's errors beside the plain reference's. Attention in three operations, each rounded, has 1.9 times
the errors of PyTorch's single one."""
_ROUNDING = 1 / 4
"""Root mean square of one rounding to nearest, in units of the last place: at most 1/4 (measured 0.20 to 0.23)."""
_FLOOR = 1 / 8
"""Units in the last place that are no evidence, as in a tolerance."""


_GROUPS = 16
_DEVIATIONS = 4.0
"""Standard deviations of the mean that are no evidence. The elements of a row of attention share the rounding of its
weights: the mean of 512 errors in eight rows was once 0.16 units by chance."""


def _deviation_of_mean(values: torch.Tensor) -> float:
    """Return the standard deviation of the mean, by the means of consecutive groups: neighbours share roundings."""
    means = torch.stack([group.mean() for group in values.tensor_split(_GROUPS)])
    return float(means.std()) / math.sqrt(_GROUPS)


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
    by_chance = _deviation_of_mean(error * exact.sign())
    usual_elements = error.abs().argsort()[:-_STEPS]
    error, of_reference, sign = error[usual_elements], of_reference[usual_elements], exact[usual_elements].sign()
    size, usual = _rms(error), max(_rms(of_reference), _ROUNDING)
    if size > _TIMES * usual + _FLOOR:
        return (
            f"its errors are {size:.2g} units in the last place (root mean square), and those of the reference "
            f"{_rms(of_reference):.2g}: operands or sums have fewer bits than the problem asks for"
        )
    drift, usual_drift = (float((values * sign).mean()) for values in (error, of_reference))
    if abs(drift) > _TIMES * abs(usual_drift) + max(_FLOOR, _DEVIATIONS * by_chance):
        direction = "large" if drift > 0 else "small"
        return (
            f"its values are too {direction} by {abs(drift):.2g} units in the last place in the mean, and those of the "
            f"reference by {abs(usual_drift):.2g}: roundings to nearest go in both directions"
        )
    return None
