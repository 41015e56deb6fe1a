"""Negative controls: bad submissions as functions of tensors, whose answers are computed from the reference.

A problem is useful only if inputs and tolerance distinguish every control from the truth. Controls that read a part of
the inputs, or compute in fewer bits, are the reference on changed inputs.
"""

import contextlib
import itertools
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

import torch

from evaluator.admission.numeric_controls import ONE_IN, Effect, Operands, off_by, with_operands_in, with_terms_left_out
from evaluator.errors import ProblemError
from evaluator.judge.numerics.arithmetic_modes import Format, rounded, with_operands
from evaluator.judge.numerics.reduced_precision import coarser_than
from evaluator.judge.numerics.rounded_reference import rounded_weights
from evaluator.judge.reference.declared_formats import input_forms
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.number_formats import are_equal, elements, format_of, nearest, wide
from evaluator.judge.tensors.pytree import Value
from evaluator.protocol.pytree import leaves, mapped
from evaluator.records import Precision

_TAIL = 16
"""Number of parts of an output or of a row; the controls `TAIL` and `TAIL_INPUT` omit the last part."""
_NO_EFFECT = 1e-9
"""Differences of float64 outputs, relative to the largest value, that are rounding alone."""
_PARTS = 8
"""Number of parts of a row; the control `ROW_START` computes the first part."""

Answer = dict[str, Value]
"""Values of a control's answer, by path."""


class NegativeControl(StrEnum):
    """Bad submissions, by behaviour."""

    IDENTITY = "hands an input back"
    ZEROS = "answers zeros"
    ONES = "answers ones"
    MEAN = "answers the mean everywhere"
    RANK_ONE = "answers row means times column means"
    SHUFFLED = "answers in the wrong order"
    HALF = "leaves half of the output at zero"
    TAIL = "leaves the last part of the output at zero"
    CACHED = "answers with another call's output"
    STALE_WEIGHTS = "computes with other weights"
    POSITIVE = "takes negative inputs for zero"
    MAGNITUDES = "ignores signs"
    HALF_INPUT = "reads half of each row"
    TAIL_INPUT = "ignores the last part of each row"
    ROW_START = "computes the first part of each row alone"
    SEVEN_EIGHTHS = "leaves an eighth of each sum out"
    TF32 = "computes products in TF32"
    BF16 = "computes in bf16"
    FP16 = "computes in fp16"
    FP8 = "computes products in fp8"
    INT8 = "computes products in int8"
    INT4 = "computes products in int4"
    CUT_OFF = "is a step of the format off in half of the elements"
    TWO_STEPS = "is two steps of the format off in a few elements"


class ControlCall(NamedTuple):
    """A call: inputs, expected values, and the expected values of another call.

    `stale` is the reference with other weights. `other` is computed with the other call's weights.
    """

    reference: Reference
    stale: Reference
    inputs: Arguments
    others: Arguments
    exact: Answer
    other: Answer


def answer(control: NegativeControl, case: ControlCall) -> Answer | None:
    """Return a control's answer; None if the control does not apply to the problem."""
    return _ANSWERS[control](case)


def without_input(case: ControlCall, path: str) -> Answer | None:
    """Return the answer of a submission that takes an input from another call."""
    other_inputs = dict(leaves([case.others.args, case.others.kwargs]))

    def swap(value: Value, at: str) -> Value:
        if isinstance(value, dict):
            return {key: swap(item, f"{at}.{key}") for key, item in value.items()}
        if isinstance(value, list | tuple):
            items = [swap(item, f"{at}[{index}]") for index, item in enumerate(value)]
            return tuple(items) if isinstance(value, tuple) else items
        return other_inputs[at] if at == path else value

    return _run(case.reference, Arguments(swap(case.inputs.args, "[0]"), swap(case.inputs.kwargs, "[1]")))


def without_weight(case: ControlCall, name: str) -> Answer | None:
    """Return the answer of a submission that ignores a weight: with the constructed values in place of the call's.

    A weight that stays constant has the values of another seed.
    """
    weight = dict(case.reference.model.named_parameters())[name]
    constructed = case.reference.weights.constructed(name)
    other_weight = dict(case.stale.model.named_parameters())[name] if constructed is None else constructed
    if are_equal(weight, other_weight):
        return case.exact
    before = weight.detach().clone()
    try:
        with torch.no_grad():
            weight.copy_(other_weight)
        return _run(case.reference, case.inputs)
    finally:
        with torch.no_grad():
            weight.copy_(before)


def has_no_effect(reference: Reference, inputs: Arguments, name: str) -> bool:
    """Return whether a parameter has no effect on the outputs in float64, as a bias before a batch norm has none.

    A submission that ignores such a parameter computes the reference's function.
    """
    model = reference.exact_model
    if model is None:
        return False
    parameter = dict(model.named_parameters())[name]
    before = parameter.detach().clone()
    old = _run(reference, inputs, in_float64=True)
    try:
        with torch.no_grad():
            parameter.mul_(1.5).add_(0.25)
        new = _run(reference, inputs, in_float64=True)
    finally:
        with torch.no_grad():
            parameter.copy_(before)
    return old is not None and new is not None and all(_are_near(old[path], new.get(path)) for path in old)


def _are_near(left: Value, right: Value) -> bool:
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor) or not left.is_floating_point():
        are_tensors = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
        return are_equal(left, right) if are_tensors else left is right
    left, right = wide(left), wide(right)
    size = torch.nan_to_num(left, 0.0, 0.0, 0.0).abs().max() if left.numel() else 0.0
    return bool((((left - right).abs() <= _NO_EFFECT * size) | (left == right) | (left.isnan() & right.isnan())).all())


def input_paths(inputs: Arguments) -> list[str]:
    """Return the paths of the tensors in the inputs."""
    named_leaves = leaves([inputs.args, inputs.kwargs])
    return [path for path, leaf in named_leaves if isinstance(leaf, torch.Tensor) and leaf.numel()]


def _run(
    reference: Reference,
    inputs: Arguments,
    mode: contextlib.AbstractContextManager[None] | None = None,
    *,
    in_float64: bool = False,
) -> Answer | None:
    try:
        return by_path(reference.altered(inputs, 0, None, mode or contextlib.nullcontext(), in_float64=in_float64))
    except ProblemError:
        return None


def _each(case: ControlCall, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Answer | None:
    outputs: Answer = {}
    for path, value in case.exact.items():
        if not isinstance(value, torch.Tensor):
            continue
        if (changed := change(wide(value))) is None:
            return None
        outputs[path] = changed.to(value.dtype)
    return {**case.exact, **outputs}


def _identity(case: ControlCall) -> Answer | None:
    inputs = [leaf for _, leaf in leaves([case.inputs.args, case.inputs.kwargs]) if isinstance(leaf, torch.Tensor)]

    def find(tensor: torch.Tensor) -> torch.Tensor | None:
        return next((leaf for leaf in inputs if leaf.shape == tensor.shape and leaf.is_floating_point()), None)

    return _each(case, lambda tensor: find(tensor) if tensor.is_floating_point() else None)


def _mean(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.numel() == 1 or not tensor.is_floating_point():
        return None
    return torch.full_like(tensor, float(tensor.double().mean()))


def _rank_one(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return row means times column means over the mean; None without rows and columns."""
    if tensor.dim() < 2 or min(tensor.shape[-2:]) < 2 or not tensor.is_floating_point():
        return None
    exact = tensor.double()
    rows, columns = exact.mean(-1, keepdim=True), exact.mean(-2, keepdim=True)
    return (rows * columns / columns.mean(-1, keepdim=True)).to(tensor.dtype)


def _shuffled(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor.reshape(-1).flip(0).reshape(tensor.shape) if tensor.numel() > 1 else None


def _emptied(tensor: torch.Tensor, part: int, *, at_the_end: bool = True) -> torch.Tensor | None:
    """Return the tensor with zeros in the last `part`-th of each row, or behind the first; None for shorter rows."""
    size = tensor.shape[-1] if tensor.dim() else 0
    if size < part:
        return None
    kept = tensor.clone()
    kept[..., size - size // part if at_the_end else size // part :] = 0
    return kept


def _without_end(tensor: torch.Tensor, part: int) -> torch.Tensor | None:
    kept = _emptied(tensor.reshape(-1), part)
    return None if kept is None else kept.reshape(tensor.shape)


def _on(case: ControlCall, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Answer | None:
    """Return the reference's answer on inputs with `change`, if any, in floating-point tensors and declared codes."""
    forms = input_forms(case.reference.problem, case.reference.model, case.inputs)
    numbers = itertools.count()

    def real(tensor: torch.Tensor) -> torch.Tensor:
        form = forms.get(next(numbers)) or format_of(tensor.dtype)
        if form is None and not tensor.is_floating_point():
            return tensor
        values = tensor if form is None else elements(tensor, form).values
        changed = change(values)
        changed = values if changed is None else changed
        return changed if form is None else nearest(changed, form)

    changed = Arguments(mapped(case.inputs.args, real), mapped(case.inputs.kwargs, real))
    return _run(case.reference, changed)


def in_fewer_bits(control: NegativeControl, reference: Reference, inputs: Arguments) -> Answer | None:
    """Return the answer of a control that rounds to a format with fewer bits; None for any other control.

    Other values stay in fp32, as in tensor cores: sums, and for TF32 everything but the operands of products. In half
    precision, the operands of products alone are rounded, and None is the answer if all operands have the format.
    """
    if control in _OPERANDS.get(reference.problem.precision, {}):
        effect = Effect()
        operands = with_operands_in(_OPERANDS[reference.problem.precision][control], effect)
        result = _run(reference, inputs, operands)
        return result if effect.changed else None
    if control not in FORMATS or (to := FORMATS[control]) not in coarser_than(reference.problem.precision):
        return None
    if to is Format.TF32:
        return _run(reference, inputs, with_operands(to))

    def down(tensor: torch.Tensor) -> torch.Tensor:
        return rounded(tensor, to)

    low = Arguments(mapped(inputs.args, down), mapped(inputs.kwargs, down))
    return _run(reference, low, rounded_weights(reference.model, to))


def _with_terms_left_out(case: ControlCall) -> Answer | None:
    """Return the answer without an eighth of the terms of each sum; None without a sum of so many terms."""
    effect = Effect()
    result = _run(case.reference, case.inputs, with_terms_left_out(effect))
    return result if effect.changed else None


def _with_other_weights(case: ControlCall) -> Answer | None:
    """Return the answer with the constructed weights, or with another seed's if weights stay constant."""
    reference = case.reference
    if not any(True for _ in reference.model.parameters()):
        return None
    if not reference.weights.names:
        return _run(case.stale, case.inputs)
    weights_seed = reference.weights_seed
    try:
        reference.set_weights(None)
        return _run(reference, case.inputs)
    finally:
        reference.set_weights(weights_seed)


def _in_format(control: NegativeControl) -> Callable[[ControlCall], Answer | None]:
    return lambda case: in_fewer_bits(control, case.reference, case.inputs)


FORMATS = {NegativeControl.TF32: Format.TF32, NegativeControl.BF16: Format.BF16, NegativeControl.FP16: Format.FP16}
_BELOW_HALF = {
    NegativeControl.FP8: Operands.FP8,
    NegativeControl.INT8: Operands.INT8,
    NegativeControl.INT4: Operands.INT4,
}
_OPERANDS = {
    Precision.BF16: _BELOW_HALF,
    Precision.FP16: {NegativeControl.BF16: Operands.BF16, **_BELOW_HALF},
}
"""Formats of operands in half precision, by the problem's precision."""
IN_FEWER_BITS = frozenset({*FORMATS, *_BELOW_HALF})
"""Controls that compute in fewer bits."""
_ANSWERS: dict[NegativeControl, Callable[[ControlCall], Answer | None]] = {
    NegativeControl.IDENTITY: _identity,
    NegativeControl.ZEROS: lambda case: _each(case, torch.zeros_like),
    NegativeControl.ONES: lambda case: _each(case, torch.ones_like),
    NegativeControl.MEAN: lambda case: _each(case, _mean),
    NegativeControl.RANK_ONE: lambda case: _each(case, _rank_one),
    NegativeControl.SHUFFLED: lambda case: _each(case, _shuffled),
    NegativeControl.HALF: lambda case: _each(case, lambda tensor: _without_end(tensor, 2)),
    NegativeControl.TAIL: lambda case: _each(case, lambda tensor: _without_end(tensor, _TAIL)),
    NegativeControl.CACHED: lambda case: case.other,
    NegativeControl.STALE_WEIGHTS: _with_other_weights,
    NegativeControl.POSITIVE: lambda case: _on(case, lambda tensor: tensor.clamp(min=0)),
    NegativeControl.MAGNITUDES: lambda case: _on(case, torch.abs),
    NegativeControl.HALF_INPUT: lambda case: _on(case, lambda tensor: _emptied(tensor, 2, at_the_end=False)),
    NegativeControl.TAIL_INPUT: lambda case: _on(case, lambda tensor: _emptied(tensor, _TAIL)),
    NegativeControl.ROW_START: lambda case: _each(case, lambda tensor: _emptied(tensor, _PARTS, at_the_end=False)),
    NegativeControl.SEVEN_EIGHTHS: _with_terms_left_out,
    **{control: _in_format(control) for control in sorted(IN_FEWER_BITS)},
    NegativeControl.CUT_OFF: lambda case: off_by(case.reference.problem, case.exact, 1, 2),
    NegativeControl.TWO_STEPS: lambda case: off_by(case.reference.problem, case.exact, 2, ONE_IN),
}
