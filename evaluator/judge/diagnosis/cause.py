"""Cause of a wrong answer: a known form of the reference, or a pattern of the wrong values."""

import contextlib
from collections.abc import Callable
from types import EllipsisType
from typing import Any

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.compare.tensor_comparison import Limit, Sides, wrong_elements
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.diagnosis.known_forms import Form, known_forms, traced
from evaluator.judge.diagnosis.wrong_pattern import Cause, wrong_pattern
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.records import TensorCheck

_LONGEST_S = 0.5
"""Time limit of all forms, on a nominal machine (`Cost.nominal_s`): most submissions of a training run are wrong."""
_MOST_ELEMENTS = 1 << 20
"""Of a larger output, rows from the first wrong value on are looked at."""
_FIRST_LOOK = 4096
_FAR = 0.05
"""A form is not compared in full if half of the first values are off by this part of the root mean square."""


def cause_of(plan: CallPlan, check: TensorCheck, actual: torch.Tensor, limits: Limit) -> Cause | None:
    """Return the cause of the wrong values of an output; None if none is certain.

    `check` is the failed comparison of the output `actual`. Every value must agree with a form of the reference, within
    the tolerance `limits`. The forms run on copies of the models, and leave the reference as it was. Exhausted memory
    finds no cause.
    """
    first = check.first_mismatch
    if not isinstance(limits, Bounds) or first is None or actual.is_complex() or len(plan.blocks) > 1:
        return None
    rows = _rows(actual, first.index[0] if first.index else 0)
    with contextlib.suppress(ProblemError, MemoryError), out_of_memory():
        reference = plan.reference.twin()
        expected = reference.expected(plan.blocks[0], plan.random_seed, plan.gradients)
        exact, honest = by_path(expected.exact).get(check.path), by_path(expected.honest).get(check.path)
        if not isinstance(exact, torch.Tensor) or not isinstance(honest, torch.Tensor) or honest.shape != actual.shape:
            return None
        sides = Sides(actual[rows], exact[rows].double(), honest[rows])
        wrong = wrong_elements(sides, limits)
        if not bool(wrong.any()):
            return None
        if expected.in_float64 and (form := _form_of(reference, plan, check.path, sides, rows, limits)) is not None:
            return Cause(f"the values are those of the reference {form.clause}", form.next_step)
        if sides.actual.shape == actual.shape:
            return wrong_pattern(sides.actual, sides.exact, wrong)
    return None


def _rows(actual: torch.Tensor, first: int) -> slice | EllipsisType:
    """Return the rows to look at: all, or at most `_MOST_ELEMENTS` elements from row `first` on."""
    if actual.numel() <= _MOST_ELEMENTS:
        return ...
    each = actual.numel() // actual.shape[0]
    return slice(first, first + max(_MOST_ELEMENTS // each, 1))


def _form_of(
    reference: Reference, plan: CallPlan, path: str, sides: Sides, rows: slice | EllipsisType, limits: Bounds
) -> Form | None:
    """Return the form of the reference whose values are the answer's; None if none, or if trials would take long."""

    def altered(context: Callable[[], contextlib.AbstractContextManager[None]]) -> dict[str, Any]:
        found = reference.altered(plan.blocks[0], plan.random_seed, plan.gradients, context(), in_float64=True)
        return by_path(found)

    trace = traced(lambda: altered(contextlib.nullcontext))
    left_s = _LONGEST_S
    for form in known_forms(reference, trace):
        left_s -= trace.cost.nominal_s(reference.device.type)
        if left_s < 0:
            return None
        try:
            values = altered(form.context).get(path)
        except (ProblemError, MemoryError):
            continue
        if not isinstance(values, torch.Tensor) or values.dim() != sides.honest.dim():
            continue
        values = values[rows]
        if values.shape != sides.honest.shape or _is_far(sides.actual, values):
            continue
        as_form = Sides(sides.actual, values, values.to(sides.honest.dtype))
        if not bool(wrong_elements(as_form, limits).any()):
            return form
    return None


def _is_far(actual: torch.Tensor, values: torch.Tensor) -> bool:
    """Return whether a few thousand values already tell an answer from a form."""
    step = max(values.numel() // _FIRST_LOOK, 1)
    some, form = (each.reshape(-1)[::step].double() for each in (actual, values))
    size = torch.nan_to_num(form, 0.0, 0.0, 0.0).square().mean().sqrt()
    return bool((~((some - form).abs() <= _FAR * size) & (some != form)).double().mean() > 1 / 2)
