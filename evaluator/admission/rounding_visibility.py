"""Visibility of a control's reduced precision within the tolerance, by the test for timed calls.

The test finds the rounding in the errors of a single call, or of several calls if an output has few elements
(`reduced_precision`).
"""

import functools
from collections.abc import Sequence

import torch

from evaluator.admission.negative_controls import IN_FEWER_BITS, NegativeControl, in_fewer_bits
from evaluator.judge.numerics.error_size import outsized
from evaluator.judge.numerics.reduced_precision import (
    ENOUGH,
    ENOUGH_CALLS,
    coarser_than,
    format_of,
    sampled,
    sampled_slices,
)
from evaluator.judge.numerics.rounded_reference import CallErrors, Errors, ReferenceCall
from evaluator.judge.reference.call_plan import CallPlan
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.records import RowSite

_FIRST_SEED = 17
_CALLS = 8


def rounding_shows(control: NegativeControl, reference: Reference, sites: Sequence[RowSite]) -> bool:
    """Return whether a control's errors on the problem's own inputs contain a rounding, or its size at `sites`."""
    return (
        _shows(control, reference, 1, large=True)
        or _shows(control, reference, ENOUGH_CALLS, large=False)
        or _is_outsized(control, reference, sites)
    )


def _is_outsized(control: NegativeControl, reference: Reference, sites: Sequence[RowSite]) -> bool:
    """Return whether a control's errors are too large for fp32 where rows cancel."""
    formats = coarser_than(reference.problem.precision)
    if control not in IN_FEWER_BITS or not sites or not formats:
        return False
    answers = [_errors_where_rows_cancel(control, reference, sites, _FIRST_SEED + number) for number in range(_CALLS)]
    sampled_answers = [answered for answered in answers if answered is not None]
    return bool(sampled_answers) and outsized(sampled_answers, formats[0]) is not None


def _errors_where_rows_cancel(
    control: NegativeControl, reference: Reference, sites: Sequence[RowSite], seed: int
) -> CallErrors | None:
    plan = CallPlan(reference, seed, row_sites=sites, random_seed=0)
    control_answer, expected = in_fewer_bits(control, reference, plan.inputs), reference.expected(plan.inputs, 0, None)
    if control_answer is None or not expected.in_float64:
        return None
    honest, exact = by_path(expected.honest), by_path(expected.exact)
    outputs: dict[str, Errors] = {}
    for path, slices in plan.slices.items():
        actual, wide, plain = control_answer.get(path), exact.get(path), honest.get(path)
        if isinstance(actual, torch.Tensor) and isinstance(wide, torch.Tensor) and isinstance(plain, torch.Tensor):
            fitting = [rows for rows in slices if rows.fit(plain.shape)]
            errors = sampled_slices(fitting, actual, wide, plain)
            outputs |= {} if errors is None else {path: errors}

    def again() -> ReferenceCall:
        inputs = CallPlan(reference, seed, row_sites=sites, random_seed=0).inputs
        return ReferenceCall(reference, inputs, 0, None, in_float64=True)

    return CallErrors(again, outputs) if outputs else None


def _shows(control: NegativeControl, reference: Reference, calls: int, *, large: bool) -> bool:
    if control not in IN_FEWER_BITS:
        return False
    samples: list[CallErrors] = []
    for number in range(calls):
        answered = _sampled_errors(control, reference, _FIRST_SEED + number, large=large)
        if answered is None:
            return False
        samples.append(answered)
    return format_of(samples, coarser_than(reference.problem.precision)) is not None


def _sampled_errors(control: NegativeControl, reference: Reference, seed: int, *, large: bool) -> CallErrors | None:
    """Return sampled errors of a control's answer, of `large` outputs or of the rest; None without samples."""
    inputs = reference.draw(seed)
    answer = in_fewer_bits(control, reference, inputs)
    if answer is None:
        return None
    expected = reference.expected(inputs, 0, None)
    if not expected.in_float64:
        return None
    honest, exact = by_path(expected.honest), by_path(expected.exact)
    outputs: dict[str, Errors] = {}
    for path, plain in honest.items():
        actual, wide = answer.get(path), exact[path]
        if not isinstance(plain, torch.Tensor) or not isinstance(wide, torch.Tensor):
            continue
        if isinstance(actual, torch.Tensor) and (plain.numel() >= ENOUGH) == large:
            errors = sampled(actual, wide, plain)
            outputs |= {} if errors is None else {path: errors}

    def again() -> ReferenceCall:
        return ReferenceCall(reference, reference.draw(seed), 0, None, in_float64=True)

    return CallErrors(functools.cache(again) if large else again, outputs) if outputs else None
