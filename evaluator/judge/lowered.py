"""Whether an answer has fewer bits than the problem asks for: wrong ones, and right ones too.

An output that is off proves nothing by the size of its error: TF32 averages out in a long sum of positive products, and
is then well within any tolerance. But rounding is a function of the operands: where the reference is computed in
float64 with operands, inputs or all results rounded to TF32, bf16 or fp16, it is off in the same elements, the same way
and as far. So the errors of an answer are regressed on those of such a reference. The coefficient is near 1 for an
answer with that rounding, whatever else is in its errors, and near 0 for any other. A constant and the exact values are
in the regression too: what is off by a part of its own size was scaled, or cut off in its sums, as tensor cores do.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch

from evaluator.errors import ProblemError
from evaluator.judge.arithmetic import Format, rounded, with_operands, with_results
from evaluator.judge.reference import Arguments, Reference, by_path
from evaluator.judge.trees import Value, unravelled
from evaluator.runner.calls import mapped

_COEFFICIENTS = (0.4, 1.6)
"""One where all of the rounding is in the errors, a half where one of two operands was rounded."""
_OWN = 0.2
"""A reference that itself rounds so has the same errors, and nobody is to blame."""
_HOPELESS = 0.25
"""Errors smaller than this part of a rounding's do not have it in them; nor that of a coarser format."""
_LEAST, _MOST = 0.2, 0.9
_DEVIATIONS = 8.0
_ENOUGH = 64
_SAMPLE = 1 << 16
_WIDEST = 0.1
"""bf16 rounds by 2**-9; what is off by a tenth of its size is wrong in some other way."""


class Errors(NamedTuple):
    """A sample of one output: places in it (flat indices), and what stands there, in float64.

    `actual` is the submission's, `exact` what should be there, `honest` the plain reference's own.
    """

    places: torch.Tensor
    actual: torch.Tensor
    exact: torch.Tensor
    honest: torch.Tensor


class Call(NamedTuple):
    """One call of the reference, or one block of it; without `in_float64` only the plain model can be asked."""

    reference: Reference
    inputs: Arguments
    random_seed: int
    gradients: list[torch.Tensor] | None
    in_float64: bool


class Found(NamedTuple):
    """The output whose errors have a format's rounding in them."""

    path: str
    format: Format


def sampled(actual: torch.Tensor, exact: torch.Tensor, honest: torch.Tensor) -> Errors | None:
    """Take a sample of an output of float32; None where it is too small to tell, or of another shape than the expected.

    Places are drawn from the operating system's seed: nobody can be right there alone.
    """
    count = honest.numel()
    if honest.dtype != torch.float32 or count < _ENOUGH or actual.shape != honest.shape:
        return None
    device = honest.device
    generator = torch.Generator(device)
    generator.seed()
    if count <= _SAMPLE:
        places = torch.arange(count, device=device)
    else:
        places = torch.randint(count, (_SAMPLE,), generator=generator, device=device)
    at = unravelled(places, honest.shape)
    return Errors(places, actual[at].double(), exact[at].double(), honest[at].double())


def format_of(call: Call, outputs: Mapping[str, Errors]) -> Found | None:
    """Name the format whose rounding is in the errors of one of the `outputs`, by path; None if none is.

    An honest answer costs three calls of the reference, and another twelve at most.
    """
    asked = {path: errors for path, errors in outputs.items() if _is_worth_it(errors)}
    best, agreement = None, 0.0
    for way in (_operands, _inputs, _results, _outputs):
        left = dict(asked)
        for to in Format:
            lower = way(call, to, left) if left else {}
            for path in left.keys() & lower.keys():
                errors, rounding = left[path], lower[path] - left[path].exact
                if (seen := _agreement(errors, rounding)) > agreement:
                    best, agreement = Found(path, to), seen
            left = {path: left[path] for path in left if path not in lower or not _hopeless(left[path], lower[path])}
    return best


def _operands(call: Call, to: Format, outputs: Mapping[str, Errors]) -> dict[str, torch.Tensor]:
    """Round the operands of matrix products and convolutions."""
    return _run(call, call.inputs, with_operands(to), outputs)


def _inputs(call: Call, to: Format, outputs: Mapping[str, Errors]) -> dict[str, torch.Tensor]:
    """Round inputs and weights."""
    return _run(call, _low(call.inputs, to), _rounded_weights(call, to), outputs)


@contextlib.contextmanager
def _everywhere(call: Call, to: Format) -> Iterator[None]:
    with _rounded_weights(call, to), with_results(to):
        yield


def _results(call: Call, to: Format, outputs: Mapping[str, Errors]) -> dict[str, torch.Tensor]:
    """Round inputs, weights and every result."""
    return _run(call, _low(call.inputs, to), _everywhere(call, to), outputs)


def _outputs(call: Call, to: Format, outputs: Mapping[str, Errors]) -> dict[str, torch.Tensor]:
    """Round the exact answer alone."""
    del call
    return {path: rounded(errors.exact, to) for path, errors in outputs.items()}


def _run(
    call: Call, inputs: Arguments, mode: contextlib.AbstractContextManager[None], outputs: Mapping[str, Errors]
) -> dict[str, torch.Tensor]:
    """Compute the reference so, and take what stands at the sampled places; nothing where it cannot be computed."""
    try:
        result = call.reference.altered(inputs, call.random_seed, call.gradients, mode, in_float64=call.in_float64)
    except (ProblemError, MemoryError):  # float16 is not for everything, and rounding needs memory of its own.
        return {}
    values: dict[str, Value] = by_path(result)
    return {
        path: value.reshape(-1)[errors.places].double()
        for path, errors in outputs.items()
        if isinstance(value := values.get(path), torch.Tensor) and value.numel() > int(errors.places.max())
    }


def _low(inputs: Arguments, to: Format) -> Arguments:
    def down(tensor: torch.Tensor) -> torch.Tensor:
        return rounded(tensor, to)

    return Arguments(mapped(inputs.args, down), mapped(inputs.kwargs, down))


def _rounded_weights(call: Call, to: Format) -> contextlib.AbstractContextManager[None]:
    model = call.reference.exact_model if call.in_float64 else call.reference.model
    return contextlib.nullcontext() if model is None else rounded_weights(model, to)


@contextlib.contextmanager
def rounded_weights(model: torch.nn.Module, to: Format) -> Iterator[None]:
    """Have a model's weights rounded for a while."""
    state = list(itertools.chain(model.parameters(), model.buffers()))
    before = [tensor.detach().clone() for tensor in state]
    try:
        with torch.no_grad():
            for tensor in state:
                tensor.copy_(rounded(tensor, to))
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(state, before, strict=True):
                tensor.copy_(value)


def _is_worth_it(errors: Errors) -> bool:
    """Say whether there are errors at all, other than the plain reference's own and those of another answer."""
    error = errors.actual - errors.exact
    return (
        bool(torch.isfinite(errors.actual[torch.isfinite(errors.exact)]).all())
        and not torch.equal(errors.actual, errors.honest)
        and 0 < float(_finite(error).norm()) <= _WIDEST * float(_finite(errors.exact).norm())
    )


def _finite(values: torch.Tensor) -> torch.Tensor:
    return values[torch.isfinite(values)]


def _hopeless(errors: Errors, lower: torch.Tensor) -> bool:
    error, rounding, _ = _apart(errors, lower - errors.exact)
    return float(error.norm()) < _HOPELESS * float(rounding.norm())


def _agreement(errors: Errors, rounding: torch.Tensor) -> float:
    """Give the partial correlation of an answer's errors with a rounding's; 0 where they do not have it in them.

    How large it must be: by chance it is of the order of one over the square root of the sample's size; but where each
    row and each column of an output has a rounding of its own, there are only as many roundings as rows and columns.
    """
    error, rounding, own = _apart(errors, rounding)
    size = float(rounding @ rounding)
    norms = float(error.norm()) * size**0.5
    if not norms:
        return 0.0
    common = float(error @ rounding)
    independent = 2.0 * len(error) ** 0.5
    least = min(max(_LEAST, _DEVIATIONS / independent**0.5), _MOST)
    is_in = _COEFFICIENTS[0] < common / size < _COEFFICIENTS[1] and abs(float(own @ rounding)) < _OWN * size
    return common / norms if is_in and common / norms > least else 0.0


def _apart(errors: Errors, rounding: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Take a constant and the exact values out of an answer's errors, a rounding's, and the reference's own."""
    known = torch.isfinite(rounding) & torch.isfinite(errors.exact) & torch.isfinite(errors.honest)
    exact = errors.exact[known]
    centred = exact - exact.mean()
    square = float(centred @ centred)

    def without(values: torch.Tensor) -> torch.Tensor:
        values = values[known]
        values = values - values.mean()
        return values - float(values @ centred) / square * centred if square else values

    return without(errors.actual - errors.exact), without(rounding), without(errors.honest - errors.exact)
