"""Answers some steps off, in formats of few bits."""

import torch

from evaluator.judge.compare.limits import form_of
from evaluator.judge.compare.steps import FEW_ONE_IN
from evaluator.judge.tensors.number_formats import codes_at, elements
from evaluator.judge.tensors.pytree import Value
from evaluator.records import ElementFormat, Problem

_Answer = dict[str, Value]
ONE_IN = 128
"""Elements per changed element of an honest answer: half of the limit (`compare.steps`)."""


def few_off(problem: Problem, answer: _Answer) -> _Answer | None:
    """Return an answer with one of `ONE_IN` elements a step off, which is honest; None without an output that may be.

    Small outputs may be off in no element.
    """
    return off_by(problem, answer, 1, ONE_IN, fewest=FEW_ONE_IN)


def off_by(problem: Problem, answer: _Answer, steps: int, one_in: int, *, fewest: int = 1) -> _Answer | None:
    """Return an answer with one of `one_in` elements `steps` steps off; None without an output in such a format.

    Outputs of less than `fewest` elements stay. So do scales of blocks: a step of a scale moves a whole block.
    """
    scales = {output_format.scales for output_format in problem.formats.outputs.values()}
    forms = {
        path: form
        for path, value in answer.items()
        if isinstance(value, torch.Tensor) and path not in scales and value.numel() >= fewest
        if (form := form_of(problem, path, value.dtype)) is not None
    }
    if not forms:
        return None
    return {**answer, **{path: _off(answer[path], form, steps, one_in) for path, form in forms.items()}}


def _off(codes: torch.Tensor, form: ElementFormat, steps: int, one_in: int) -> torch.Tensor:
    """Return codes with places moved towards zero, or away from a zero too near for the steps."""
    values, places = elements(codes, form)
    flat = places.reshape(-1).clone()
    # The last of each `one_in` elements: with the first, a rest of a few elements had one of its own.
    off = slice(min(one_in, flat.numel()) - 1, None, one_in)
    chosen = flat[off]
    flat[off] = torch.where(chosen.abs() >= steps, chosen - chosen.sign() * steps, chosen + steps)
    changed = codes_at(flat.reshape(places.shape), form).view(torch.uint8)
    if not bool(values.isfinite().all()):  # NaN and infinity have no neighbours. Packed formats have neither.
        changed = torch.where(values.isfinite(), changed, codes.view(torch.uint8))
    return changed.view(codes.dtype)
