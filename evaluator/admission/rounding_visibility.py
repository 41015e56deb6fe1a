"""Visibility of a control's reduced precision within the tolerance, by the test for timed calls.

The test finds the rounding in the errors of a single call, or of several calls if an output has few elements
(`reduced_precision`).
"""

import functools

import torch

from evaluator.admission.negative_controls import FORMATS, NegativeControl, in_fewer_bits
from evaluator.judge.numerics.reduced_precision import (
    ENOUGH,
    ENOUGH_CALLS,
    coarser_than,
    format_of,
    sampled,
)
from evaluator.judge.numerics.rounded_reference import Asked, Errors, ReferenceCall
from evaluator.judge.reference.reference import Reference, by_path

_FIRST_SEED = 17


def rounding_shows(control: NegativeControl, reference: Reference) -> bool:
    """Return whether a control's errors on the problem's own inputs contain a rounding."""
    return _shows(control, reference, 1, large=True) or _shows(control, reference, ENOUGH_CALLS, large=False)


def _shows(control: NegativeControl, reference: Reference, calls: int, *, large: bool) -> bool:
    if control not in FORMATS:
        return False
    asked: list[Asked] = []
    for number in range(calls):
        answered = _asked(control, reference, _FIRST_SEED + number, large=large)
        if answered is None:
            return False
        asked.append(answered)
    return format_of(asked, coarser_than(reference.problem.precision)) is not None


def _asked(control: NegativeControl, reference: Reference, seed: int, *, large: bool) -> Asked | None:
    """Return sampled errors of a control's answer, of `large` outputs or of the rest; None without samples."""
    inputs = reference.draw(seed)
    found = in_fewer_bits(control, reference, inputs)
    if found is None:
        return None
    expected = reference.expected(inputs, 0, None)
    if not expected.in_float64:
        return None
    honest, exact = by_path(expected.honest), by_path(expected.exact)
    outputs: dict[str, Errors] = {}
    for path, plain in honest.items():
        actual, wide = found.get(path), exact[path]
        if not isinstance(plain, torch.Tensor) or not isinstance(wide, torch.Tensor):
            continue
        if isinstance(actual, torch.Tensor) and (plain.numel() >= ENOUGH) == large:
            errors = sampled(actual, wide, plain)
            outputs |= {} if errors is None else {path: errors}

    def again() -> ReferenceCall:
        return ReferenceCall(reference, reference.draw(seed), 0, None, in_float64=True)

    return Asked(functools.cache(again) if large else again, outputs) if outputs else None
