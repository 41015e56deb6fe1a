"""Limit of an output's errors, by the output's dtype and the author's declaration."""

import math
from collections.abc import Mapping

import torch
from msgspec.structs import replace

from evaluator.judge.compare.steps import Steps
from evaluator.judge.compare.tensor_comparison import Limit, Sides
from evaluator.judge.compare.tolerance import ARITHMETIC, bounds
from evaluator.judge.tensors.number_formats import format_of, scale_format
from evaluator.records import ElementFormat, Problem, TensorCheck, ToleranceRule

_WITHOUT_FLOOR = (ElementFormat.INT8, ElementFormat.INT4, ElementFormat.E8M0)
"""Formats whose steps are not finer near zero than the rounding of the arithmetic. In bf16, the floor of a row of int8
would be more than a step from a root mean square of 64 on."""


def limit_of(
    problem: Problem,
    path: str,
    value: object,
    rounding: float = 0.0,
    rule: ToleranceRule = ToleranceRule.MEASURED,
) -> Limit:
    """Return the limit of an output; None for other values than tensors, and for integers that are no codes.

    KernelBench's rule knows no codes, and has the same limit for integers as for fp32.
    """
    if not isinstance(value, torch.Tensor):
        return None
    if rule is ToleranceRule.MEASURED and (form := form_of(problem, path, value.dtype)) is not None:
        arithmetic = bounds(rule, problem, ARITHMETIC[problem.precision])
        # A scale far below the row's largest scale belongs to a block of its own.
        of_scales = any(output.scales == path for output in problem.formats.outputs.values())
        floor = 0.0 if form in _WITHOUT_FLOOR or of_scales else arithmetic.floor
        return Steps(form, floor, arithmetic.multiple)
    if rule is ToleranceRule.MEASURED and not (value.is_floating_point() or value.is_complex()):
        return None
    real = torch.empty(0, dtype=value.dtype).real.dtype if value.is_complex() else value.dtype
    return bounds(rule, problem, real, rounding)


def form_of(problem: Problem, path: str, dtype: torch.dtype) -> ElementFormat | None:
    """Return the format of an output of few bits; None for other outputs."""
    outputs = problem.formats.outputs
    if path in outputs and (declared := outputs[path].format) is not None:
        return declared
    of_scales = (output.format for output in outputs.values() if output.format is not None and output.scales == path)
    return next((scale_format(form) for form in of_scales), None) or format_of(dtype)


def with_scales(limit: Limit, problem: Problem, path: str, sides: Mapping[str, Sides]) -> Limit:
    """Return the limit of an output with the scales of its blocks, from the three sides of all outputs."""
    declared = problem.formats.outputs.get(path)
    if not isinstance(limit, Steps) or declared is None or declared.scales is None:
        return limit
    return limit._replace(scales=sides[declared.scales])


def with_flips(check: TensorCheck, problem: Problem) -> TensorCheck:
    """Return a comparison as right if no more elements are wrong than the author lets flip, and none is NaN."""
    declared = problem.formats.outputs.get(check.path)
    if check.ok or check.nonfinite or declared is None or check.mismatches > declared.flips * math.prod(check.shape):
        return check
    return replace(check, ok=True, error_ratio=1.0, mismatches=0, first_mismatch=None)
