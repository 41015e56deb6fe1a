"""Whether an answer has fewer bits than the problem asks for: wrong ones, and right ones too.

An output that is off proves nothing by the size of its error: TF32 averages out in a long sum of positive products, and
is then well within any tolerance. But rounding is a function of the operands: where the reference is computed in
float64 with operands, inputs or all results rounded to TF32, bf16 or fp16, it is off in the same elements, the same way
and as far. So the errors of an answer are regressed on those of such a reference. The coefficient is near 1 for an
answer with that rounding, whatever else is in its errors, and near 0 for any other. A constant and the exact values are
in the regression too: what is off by a part of its own size was scaled, or cut off in its sums, as tensor cores do.

An output of a few elements, such as a loss, has too few errors for that in one call. Those of many calls are put
together.
"""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.numerics.arithmetic_modes import Format, rounded, with_operands, with_results
from evaluator.judge.numerics.sign_test import signs_agree
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.pytree import Value, unravelled
from evaluator.protocol.model_call import mapped

_COEFFICIENTS = (0.4, 1.6)
"""One where all of the rounding is in the errors, a half where one of two operands was rounded."""
_OWN = 0.2
"""A reference that itself rounds so has the same errors, and nobody is to blame."""
_HOPELESS = 0.25
"""Errors smaller than this part of a rounding's do not have it in them; nor that of a coarser format."""
_LEAST, _MOST = 0.2, 0.9
_DEVIATIONS = 8.0
ENOUGH = 64
"""So many errors of one output are asked by themselves, fewer together with those of other calls."""
ENOUGH_CALLS = 20
"""Calls that say something together. A submission that is timed has answered as many (`timing_loop.MIN_CALLS`)."""
_FIRST_CALLS = 4
"""After so many it shows whether errors are far smaller than a rounding's."""
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


class ReferenceCall(NamedTuple):
    """One call of the reference, or one block of it; without `in_float64` only the plain model can be asked."""

    reference: Reference
    inputs: Arguments
    random_seed: int
    gradients: list[torch.Tensor] | None
    in_float64: bool


class Asked(NamedTuple):
    """Errors of one call's outputs, by path. `again` makes the call: inputs may be too large to keep those of many."""

    again: Callable[[], ReferenceCall]
    outputs: Mapping[str, Errors]


class Found(NamedTuple):
    """The output whose errors have a format's rounding in them."""

    path: str
    format: Format


def sampled(actual: torch.Tensor, exact: torch.Tensor, honest: torch.Tensor) -> Errors | None:
    """Take a sample of an output of float32; None where it is empty, or of another shape than the expected.

    Places are drawn from the operating system's seed: nobody can be right there alone.
    """
    count = honest.numel()
    if honest.dtype != torch.float32 or not count or actual.shape != honest.shape:
        return None
    device = honest.device
    generator = torch.Generator(device)
    generator.seed()
    if count <= _SAMPLE:
        places = torch.arange(count, device=device)
    else:
        places = torch.randint(count, (_SAMPLE,), generator=generator, device=device)
    at = unravelled(places, honest.shape)
    return Errors(places, *(side[at].reshape(-1).double() for side in (actual, exact, honest)))


def format_of(calls: Sequence[Asked]) -> Found | None:
    """Name the format whose rounding is in the errors of one output, put together from all `calls`; None if none is.

    An honest answer costs three calls of the reference as a rule, six where it has no products, and twelve at most; of
    many `calls`, the first four cost so much each, and all do where errors are about as large as a rounding's.

    Raises MemoryError where a format could not be tried, for rounding takes more memory than float64 alone, and none
    was found among the others.
    """
    together = {path: _together([call.outputs.get(path) for call in calls]) for path in calls[0].outputs}
    asked = {path: errors for path, errors in together.items() if errors is not None and _is_worth_it(errors)}
    best, agreement = None, 0.0
    untried: str | None = None
    for way in _WAYS:
        left = dict(asked)
        for to in Format:
            try:
                with out_of_memory():
                    roundings = _roundings(way, to, calls, left)
            except MemoryError as error:
                untried = f"{to.value}: {error}"
                continue
            for path, rounding in roundings.items():
                errors = left[path]
                seen = _agreement(errors, rounding) if len(rounding) == len(errors.exact) else 0.0
                if seen > agreement:
                    best, agreement = Found(path, to), seen
                if _hopeless(errors, rounding):
                    del left[path]
    if best is None and untried is not None:
        raise MemoryError(untried)
    return best


def _together(calls: Sequence[Errors | None]) -> Errors | None:
    """Put the errors of an output together, (calls, elements); None if there are too few, or not as many in all."""
    known = [call for call in calls if call is not None]
    elements = {len(call.exact) for call in known}
    is_enough = len(known) >= ENOUGH_CALLS or (len(known) == 1 and max(elements) >= ENOUGH)
    if len(known) < len(calls) or len(elements) > 1 or not is_enough:
        return None
    return Errors(*(torch.stack(parts) for parts in zip(*known, strict=True)))


def _roundings(way: "_Way", to: Format, calls: Sequence[Asked], left: Mapping[str, Errors]) -> dict[str, torch.Tensor]:
    """Compute by path what rounding does to the outputs that are `left`, in all calls.

    In the first few alone, where that is nothing or so much in all outputs that it cannot be in their errors.
    """
    parts: dict[str, list[torch.Tensor]] = {path: [] for path in left}
    for number, call in enumerate(calls):
        outputs = {path: call.outputs[path] for path in parts}
        lower = way(call.again, to, outputs) if outputs else {}
        # What cannot be computed once is not looked at: float16 is not for everything.
        parts = {path: [*known, lower[path] - outputs[path].exact] for path, known in parts.items() if path in lower}
        if number + 1 == _FIRST_CALLS and not any(_may_be_in(left[path], torch.stack(parts[path])) for path in parts):
            break
    return {path: torch.stack(known) for path, known in parts.items()}


def _may_be_in(errors: Errors, rounding: torch.Tensor) -> bool:
    return bool(rounding.any()) and not _hopeless(errors, rounding)


def _operands(again: Callable[[], ReferenceCall], to: Format, outputs: Mapping[str, Errors]) -> dict[str, torch.Tensor]:
    """Round the operands of matrix products and convolutions."""
    return _run(again(), None, with_operands(to), outputs)


def _inputs(again: Callable[[], ReferenceCall], to: Format, outputs: Mapping[str, Errors]) -> dict[str, torch.Tensor]:
    """Round inputs and weights."""
    call = again()
    return _run(call, to, _rounded_weights(call, to), outputs)


@contextlib.contextmanager
def _everywhere(call: ReferenceCall, to: Format) -> Iterator[None]:
    with _rounded_weights(call, to), with_results(to):
        yield


def _results(again: Callable[[], ReferenceCall], to: Format, outputs: Mapping[str, Errors]) -> dict[str, torch.Tensor]:
    """Round inputs, weights and every result."""
    call = again()
    return _run(call, to, _everywhere(call, to), outputs)


def _outputs(again: Callable[[], ReferenceCall], to: Format, outputs: Mapping[str, Errors]) -> dict[str, torch.Tensor]:
    """Round the exact answer alone."""
    del again
    return {path: rounded(errors.exact, to) for path, errors in outputs.items()}


_Way = Callable[[Callable[[], ReferenceCall], Format, Mapping[str, Errors]], dict[str, torch.Tensor]]
_WAYS: tuple[_Way, ...] = (_operands, _inputs, _results, _outputs)


def _run(
    call: ReferenceCall,
    to: Format | None,
    mode: contextlib.AbstractContextManager[None],
    outputs: Mapping[str, Errors],
) -> dict[str, torch.Tensor]:
    """Compute the reference so, and take what stands at the sampled places; nothing where it cannot be computed.

    Its inputs are rounded first where `to` is given.
    """
    try:
        inputs = call.inputs if to is None else _low(call.inputs, to)
        result = call.reference.altered(inputs, call.random_seed, call.gradients, mode, in_float64=call.in_float64)
    except ProblemError:
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


def _rounded_weights(call: ReferenceCall, to: Format) -> contextlib.AbstractContextManager[None]:
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


def _hopeless(errors: Errors, rounding: torch.Tensor) -> bool:
    """Say whether errors are too small to have a rounding in them, as far as that was computed."""
    error, rounding, _ = _apart(errors, rounding)
    return float(error.norm()) < _HOPELESS * float(rounding.norm())


def _agreement(errors: Errors, rounding: torch.Tensor) -> float:
    """Give the partial correlation of an answer's errors with a rounding's; 0 where they do not have it in them.

    It must be in them whether large values count for more or all count alike, else that of a few would speak for all.
    Of many calls every one has a voice.
    """
    if len(rounding) > 1:
        goes = signs_agree(errors.actual - errors.exact, rounding, errors.exact)
        return _correlation(*_apart(errors, rounding), len(rounding)) if goes else 0.0
    # Where each row and each column has a rounding of its own, there are only as many as rows and columns.
    independent = 2.0 * math.sqrt(int(_known(errors, rounding).sum()))
    ways = [_apart(errors, rounding, alike=alike) for alike in (False, True)]
    return min(_correlation(*apart, independent) for apart in ways)


def _correlation(error: torch.Tensor, rounding: torch.Tensor, own: torch.Tensor, independent: float) -> float:
    """Correlate errors with a rounding; 0 where that is by chance, or another part of them than all of it or a half.

    By chance it is of the order of one over the square root of how many are `independent`.
    """
    size = float(rounding @ rounding)
    norms = float(error.norm()) * math.sqrt(size)
    if not norms:
        return 0.0
    common = float(error @ rounding)
    least = min(max(_LEAST, _DEVIATIONS / math.sqrt(independent)), _MOST)
    is_in = _COEFFICIENTS[0] < common / size < _COEFFICIENTS[1] and abs(float(own @ rounding)) < _OWN * size
    return common / norms if is_in and common / norms > least else 0.0


def _known(errors: Errors, rounding: torch.Tensor) -> torch.Tensor:
    return torch.isfinite(rounding) & torch.isfinite(errors.exact) & torch.isfinite(errors.honest)


def _apart(
    errors: Errors, rounding: torch.Tensor, *, alike: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Take a constant and the exact values out of an answer's errors, a rounding's, and the reference's own.

    With `alike`, those of values larger than most are scaled down to as much as most have. Of many calls, each element
    has a constant of its own: what is the same in all of them.
    """
    errors = Errors(*(side[: len(rounding)] for side in errors))
    known = _known(errors, rounding)
    if len(rounding) > 1:
        rows = known.all(1)
        given = [(side[rows] - side[rows].mean(0)).reshape(-1) for side in _of_interest(errors, rounding)]
        return _without(given, [])
    exact, *sides = (side[known] for side in _of_interest(errors, rounding))
    sizes = exact.abs()
    usual = sizes[sizes > 0].median() if alike and bool((sizes > 0).any()) else sizes.new_tensor(torch.inf)
    weights = (usual / sizes).clamp(max=1.0)
    return _without([exact * weights, *(side * weights for side in sides)], [weights])


def _of_interest(errors: Errors, rounding: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Give the exact values, the answer's errors, the rounding's, and the reference's own."""
    return errors.exact, errors.actual - errors.exact, rounding, errors.honest - errors.exact


def _without(
    given: Sequence[torch.Tensor], constant: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Take what is `constant` out of all that is given, and then the first of that out of the other three."""
    for one in constant:
        given = [_less(values, one) for values in given]
    exact, error, rounding, own = given
    return _less(error, exact), _less(rounding, exact), _less(own, exact)


def _less(values: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
    square = float(one @ one)
    return values - float(values @ one) / square * one if square else values
