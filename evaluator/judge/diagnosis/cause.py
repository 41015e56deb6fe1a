"""Cause of a wrong answer: a known form of the reference, or a pattern of the wrong values."""

import contextlib
from collections.abc import Callable
from types import EllipsisType
from typing import Any, NamedTuple

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.compare.tensor_comparison import Limit, Sides, wrong_elements
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.diagnosis.known_forms import Form, known_forms, traced
from evaluator.judge.diagnosis.wrong_pattern import Cause, wrong_pattern
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.records import TensorCheck

_LONGEST_S = 0.5
"""Time limit of all forms, on a nominal machine (`Cost.nominal_s`): most submissions of a training run are wrong."""
_MOST_ELEMENTS = 1 << 20
"""Of a larger output, rows from the first wrong value on are looked at. Independent rows are computed alone."""
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
    if not isinstance(limits, Bounds) or first is None or actual.is_complex():
        return None
    with contextlib.suppress(ProblemError, MemoryError), out_of_memory():
        part = _part(plan, check.path, actual, first.index[0] if first.index else 0, limits)
        if part is None:
            return None
        reference = plan.reference.twin()
        expected = reference.expected(part.inputs, plan.random_seed, plan.gradients)
        exact, honest = by_path(expected.exact).get(check.path), by_path(expected.honest).get(check.path)
        answer = actual[part.rows]
        if not isinstance(exact, torch.Tensor) or not isinstance(honest, torch.Tensor) or honest.shape != answer.shape:
            return None
        sides = Sides(answer[part.seen], exact[part.seen].double(), honest[part.seen])
        wrong = wrong_elements(sides, limits)
        if not bool(wrong.any()):
            return None
        if expected.in_float64 and (form := _form_of(reference, plan, part, check.path, sides, limits)) is not None:
            return Cause(f"the values are those of the reference {form.clause}", form.next_step)
        if sides.actual.shape == actual.shape:
            return wrong_pattern(sides.actual, sides.exact, wrong)
    return None


class _Part(NamedTuple):
    """Inputs of a call or of a block, the `rows` of the output that follow from them, and the `seen` rows of these."""

    inputs: Arguments
    rows: slice | EllipsisType
    seen: slice | EllipsisType


def _part(plan: CallPlan, path: str, actual: torch.Tensor, row: int, limits: Bounds) -> _Part | None:
    """Return the part of a call that an output's `row` follows from: the whole call if no block reproduces the row.

    A form of a whole call of many elements would take longer than the time limit. None if the output of blocks has no
    rows.
    """
    if len(plan.blocks) > 1:
        return _block(plan, plan.blocks, path, actual, row)
    if plan.gradients is None and actual.numel() > _MOST_ELEMENTS:
        reference = plan.reference.twin()
        outputs = reference.honest(plan.inputs, plan.random_seed, None).result
        reference.split_rows(plan.inputs, outputs.outputs, -(-actual.numel() // _MOST_ELEMENTS))
        blocks = reference.blocks(plan.inputs)
        part = _block(plan, blocks, path, actual, row) if len(blocks) > 1 else None
        whole = by_path(outputs)[path]
        if part is not None and isinstance(whole, torch.Tensor) and _reproduces(plan, part, path, whole, limits):
            return part
    return _Part(plan.blocks[0], ..., _seen(actual, row))


def _block(plan: CallPlan, blocks: list[Arguments], path: str, actual: torch.Tensor, row: int) -> _Part | None:
    """Return the block that an output's `row` follows from. All blocks but the last have as many rows as the first."""
    one = by_path(plan.reference.twin().honest(blocks[0], plan.random_seed, None).result).get(path)
    if not isinstance(one, torch.Tensor) or not one.dim() or not len(one):
        return None
    number, within = divmod(row, len(one))
    rows = slice(number * len(one), (number + 1) * len(one))
    return _Part(blocks[number], rows, _seen(actual[rows], within)) if number < len(blocks) else None


def _reproduces(plan: CallPlan, part: _Part, path: str, whole: torch.Tensor, limits: Bounds) -> bool:
    """Return whether a block's values are those of the `whole` output's rows: a split is only tried on other rows."""
    expected = plan.reference.twin().expected(part.inputs, plan.random_seed, None)
    exact, honest, rows = by_path(expected.exact)[path], by_path(expected.honest)[path], whole[part.rows]
    if not isinstance(exact, torch.Tensor) or not isinstance(honest, torch.Tensor) or honest.shape != rows.shape:
        return False
    return not bool(wrong_elements(Sides(rows, exact.double(), honest), limits).any())


def _seen(actual: torch.Tensor, first: int) -> slice | EllipsisType:
    """Return the rows to look at: all, or at most `_MOST_ELEMENTS` elements from row `first` on."""
    if actual.numel() <= _MOST_ELEMENTS:
        return ...
    each = actual.numel() // actual.shape[0]
    return slice(first, first + max(_MOST_ELEMENTS // each, 1))


def _form_of(reference: Reference, plan: CallPlan, part: _Part, path: str, sides: Sides, limits: Bounds) -> Form | None:
    """Return the form of the reference whose values are the answer's; None if none, or if trials would take long."""

    def altered(context: Callable[[], contextlib.AbstractContextManager[None]]) -> dict[str, Any]:
        found = reference.altered(part.inputs, plan.random_seed, plan.gradients, context(), in_float64=True)
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
        values = values[part.seen]
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
