"""Cause of a wrong answer: a known form of the reference, or a pattern of the wrong values."""

import contextlib
from collections.abc import Callable, Iterator
from enum import Enum, auto
from types import EllipsisType
from typing import Any, NamedTuple

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.findings.comparing import COMPUTE_IN_FP32
from evaluator.judge.answer.known_forms import Form, known_forms, traced
from evaluator.judge.answer.wrong_pattern import Cause, wrong_pattern
from evaluator.judge.compare.tensor_comparison import Limit, Sides, wrong_elements
from evaluator.judge.compare.tolerance import Bounds
from evaluator.judge.numerics.reduced_precision import half_numbers
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.records import Precision, TensorCheck

_LONGEST_S = 0.5
"""Time limit of all forms, on a nominal machine (`Cost.nominal_s`): most submissions of a training run are wrong."""
_MOST_ELEMENTS = 1 << 20
"""Of a larger output, rows from the first wrong value on are looked at. Independent rows are computed alone."""
_FIRST_LOOK = 4096
_FAR = 0.05
"""A form is not compared in full if half of the first values are off by this part of the root mean square."""
_REST = 0.25
"""The part of the wrong values' errors that may remain beside a form. More is no evidence: the errors of a one-pass
variance, just beyond the tolerance, were within the tolerance of a norm without its epsilon too."""
_LITTLE_REST = 1 / 16
_OF_HALF, _NEARLY_EACH = 2.0**-8, 0.99
"""A form may also have errors of fp16 or bf16. Then the rest is at most `_LITTLE_REST` of the wrong values' errors, and
`_OF_HALF` of nearly each value and its row. A chain of operations in bf16 is off by about 2**-9 of the values."""
_NEAR = 0.1
"""Errors of half precision are at most this part of the wrong values."""


def cause_of(plan: CallPlan, check: TensorCheck, actual: torch.Tensor, limits: Limit) -> Cause | None:
    """Return the cause of the wrong values of an output; None if none is certain.

    `check` is the failed comparison of the output `actual`. Every value must agree with a form of the reference, within
    the tolerance `limits` or half precision's rounding. The wrong values must be much closer to the form than to the
    reference. The forms run on copies of the models, and leave the reference as it was. Exhausted memory finds no
    cause.
    """
    first = check.first_mismatch
    if not isinstance(limits, Bounds) or first is None or actual.is_complex():
        return None
    with contextlib.suppress(ProblemError, MemoryError), out_of_memory():
        for part in _parts(plan, check.path, actual, first.index[0] if first.index else 0):
            cause = _cause_in(part, plan, check.path, actual, limits)
            if cause is not _Needs.WHOLE_CALL:
                return cause
    return None


class _Excerpt(NamedTuple):
    """A call or a block: the inputs, the `rows` of the output that follow from them, and which of these are looked at.

    `plain` are the rows of the whole call's plain output, which a block must reproduce; None if nothing is to be shown.
    """

    inputs: Arguments
    rows: slice | EllipsisType
    looked_at: slice | EllipsisType
    plain: torch.Tensor | None = None


class _Needs(Enum):
    """What the search for a cause needs beyond a block, whose rows depend on others, or would in a form."""

    WHOLE_CALL = auto()


def _parts(plan: CallPlan, path: str, actual: torch.Tensor, row: int) -> Iterator[_Excerpt]:
    """Yield the block of a large call that an output's `row` follows from, then the whole call.

    A form of a large call takes longer than the time limit. Where the author splits the inputs, only blocks are known.
    """
    if len(plan.blocks) > 1:
        if (block_of_row := _block(plan.reference.twin(), plan, plan.blocks, path, actual, row)) is not None:
            yield block_of_row
        return
    # A batch norm in training mixes all rows.
    if plan.gradients is None and actual.numel() > _MOST_ELEMENTS and not plan.reference.running_statistics:
        reference = plan.reference.twin()
        plain = plan.plain or reference.honest(plan.inputs, plan.random_seed, None)
        reference.split_rows(plan.inputs, plain.result.outputs, -(-actual.numel() // _MOST_ELEMENTS))
        blocks = reference.blocks(plan.inputs)
        part = _block(reference, plan, blocks, path, actual, row) if len(blocks) > 1 else None
        whole = by_path(plain.result).get(path)
        del reference, plain
        if part is not None and isinstance(whole, torch.Tensor):
            yield part._replace(plain=whole[part.rows])
        del whole
    yield _Excerpt(plan.blocks[0], ..., ... if actual.numel() <= _MOST_ELEMENTS else _from_row(actual, row))


def _block(
    reference: Reference, plan: CallPlan, blocks: list[Arguments], path: str, actual: torch.Tensor, row: int
) -> _Excerpt | None:
    """Return the block that an output's `row` follows from. All blocks but the last have as many rows as the first."""
    first_output = by_path(reference.honest(blocks[0], plan.random_seed, None).result).get(path)
    if not isinstance(first_output, torch.Tensor) or not first_output.dim() or not len(first_output):
        return None
    number, within = divmod(row, len(first_output))
    rows = slice(number * len(first_output), (number + 1) * len(first_output))
    return _Excerpt(blocks[number], rows, _from_row(actual, within)) if number < len(blocks) else None


def _from_row(actual: torch.Tensor, first: int) -> slice:
    """Return at most `_MOST_ELEMENTS` elements from row `first` on. Earlier rows are right, and of no form."""
    row_elements = actual.numel() // actual.shape[0]
    return slice(first, first + max(_MOST_ELEMENTS // row_elements, 1))


def _cause_in(part: _Excerpt, plan: CallPlan, path: str, actual: torch.Tensor, limits: Bounds) -> Cause | _Needs | None:
    reference = plan.reference.twin()
    expected = reference.expected(part.inputs, plan.random_seed, plan.gradients)
    exact, honest = by_path(expected.exact).get(path), by_path(expected.honest).get(path)
    answer = actual[part.rows]
    if not isinstance(exact, torch.Tensor) or not isinstance(honest, torch.Tensor) or honest.shape != answer.shape:
        return _Needs.WHOLE_CALL if part.plain is not None else None
    if part.plain is not None and bool(wrong_elements(Sides(part.plain, exact.double(), honest), limits).any()):
        return _Needs.WHOLE_CALL  # `split_rows` compares the first and the last block alone, and roughly.
    sides = Sides(answer[part.looked_at], exact[part.looked_at].double(), honest[part.looked_at])
    wrong = wrong_elements(sides, limits)
    if not bool(wrong.any()):
        return None
    if expected.in_float64:
        form = _form_of(reference, plan, part, path, sides, limits, wrong)
        if form is _Needs.WHOLE_CALL:
            return form
        if form is not None:
            return Cause(f"the values are {form.clause}", form.next_step)
    pattern = wrong_pattern(sides.actual, sides.exact, wrong) if sides.actual.shape == actual.shape else None
    if pattern is None and reference.problem.precision is Precision.FP32 and actual.dtype == torch.float32:
        return _of_half_precision(sides, wrong)
    return pattern


def _of_half_precision(sides: Sides, wrong: torch.Tensor) -> Cause | None:
    """Return the cause if the wrong values are near the expected ones, and numbers of half precision."""
    got, exact = sides.actual[wrong], sides.exact[wrong]
    is_near = bool((got.double() - exact).square().mean() <= _NEAR * _NEAR * exact.square().mean())
    name = half_numbers(got, sides.honest[wrong]) if is_near else None
    return None if name is None else Cause(f"the wrong values are {name} numbers", COMPUTE_IN_FP32)


def _form_of(
    reference: Reference, plan: CallPlan, part: _Excerpt, path: str, sides: Sides, limits: Bounds, wrong: torch.Tensor
) -> Form | _Needs | None:
    """Return the form of the reference whose values are the answer's; None if none, or if trials would take long.

    The clause names the distance from the form. A form that mixes rows has other values in a block than in the call.
    """

    def altered(context: Callable[[], contextlib.AbstractContextManager[None]]) -> dict[str, Any]:
        result = reference.altered(part.inputs, plan.random_seed, plan.gradients, context(), in_float64=True)
        return by_path(result)

    trace = traced(altered)
    left_s = _LONGEST_S
    nearly: Form | None = None
    none_found: _Needs | None = None
    for form in known_forms(reference, trace):
        if form.mixes_rows and part.rows is not ...:
            none_found = _Needs.WHOLE_CALL
            continue
        left_s -= trace.cost.nominal_s(reference.device.type)
        if left_s < 0:
            break
        try:
            values = altered(form.context).get(path)
        except (ProblemError, MemoryError):
            continue
        if not isinstance(values, torch.Tensor) or values.dim() != sides.honest.dim():
            continue
        values = values[part.looked_at]
        if values.shape != sides.honest.shape or _is_far(sides.actual, values):
            continue
        as_form = Sides(sides.actual, values, values.to(sides.honest.dtype))
        if not bool(wrong_elements(as_form, limits).any()) and _explains(as_form, sides, wrong):
            return form._replace(clause=f"those of the reference {form.clause}")
        if nearly is None and (rest := _rest_of_half(as_form, sides, wrong)) is not None:
            clause = f"those of the reference {form.clause}, but for errors of up to about {rest:.0e} of their size"
            nearly = form._replace(clause=clause)
    return none_found or nearly


def _explains(as_form: Sides, sides: Sides, wrong: torch.Tensor, rest_part: float = _REST) -> bool:
    """Return whether the `wrong` values are much closer to a form than to the reference."""
    rest, error = ((compared.actual.double() - compared.exact.double())[wrong] for compared in (as_form, sides))
    if not bool(torch.isfinite(error).all()):  # A form with the same infinities or NaN is no coincidence.
        return True
    return bool(rest.square().mean() <= rest_part * rest_part * error.square().mean())


def _rest_of_half(as_form: Sides, sides: Sides, wrong: torch.Tensor) -> float | None:
    """Return the distance from a form, relative to nearly each value and its row, if it may be of half precision."""
    form = as_form.exact.double()
    rest = (as_form.actual.double() - form).abs()
    if not bool(torch.isfinite(rest).all()) or not _explains(as_form, sides, wrong, _LITTLE_REST):
        return None
    rows = form.square().mean(-1, keepdim=True).sqrt() if form.dim() else form.abs()
    sizes = torch.where(rest > 0, rest / (form.abs() + rows), rest).reshape(-1).sort().values
    of_nearly_each = float(sizes[int((len(sizes) - 1) * _NEARLY_EACH)])
    return of_nearly_each if of_nearly_each <= _OF_HALF else None


def _is_far(actual: torch.Tensor, values: torch.Tensor) -> bool:
    """Return whether a few thousand values already tell an answer from a form."""
    step = max(values.numel() // _FIRST_LOOK, 1)
    some, form = (tensor.reshape(-1)[::step].double() for tensor in (actual, values))
    size = torch.nan_to_num(form, 0.0, 0.0, 0.0).square().mean().sqrt()
    return bool((~((some - form).abs() <= _FAR * size) & (some != form)).double().mean() > 1 / 2)
