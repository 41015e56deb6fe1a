"""Detection of reduced precision: TF32, bf16 or fp16 in the errors of an fp32 output, whether wrong or correct.

The size of an error proves nothing: TF32 averages out in a long sum of positive products, well within any tolerance.
But rounding is a function of the operands. A float64 reference can be computed with operands, inputs or all results
rounded to TF32, bf16 or fp16. An answer with the same rounding has the same errors, in sign and size, in the same
elements. The errors of an output are therefore regressed on the errors of a rounded reference. The coefficient is near
1 for an output with this rounding, also beside other errors, and near 0 for any other output. The regression also
includes a constant and the exact values. An error proportional to the value comes from a scale factor, or from
truncated sums, as in tensor cores.

An output of few elements, such as a loss, has too few errors in a single call. The errors of many calls are tested
together. If calls differ in size, a correlation of few numbers may come from a single call. Each call with a large
rounding therefore has an equal vote: the errors must have the sign of the rounding (`signs_agree`).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch

from evaluator.devices.out_of_memory import out_of_memory
from evaluator.judge.numerics.arithmetic_modes import Format
from evaluator.judge.numerics.rounded_reference import WAYS, CallErrors, Errors, Way
from evaluator.judge.reference.cancelling_rows import Slices
from evaluator.judge.tensors.pytree import unravelled
from evaluator.records import Precision

_COEFFICIENTS = (0.4, 1.6)
"""Accepted coefficients: 1 if the errors contain the whole rounding, 0.5 if only a single operand of two was
rounded."""
_OWN = 0.2
"""Limit of the coefficient for the plain reference's own errors. Above, the reference itself rounds, and the submission
is not at fault."""
_HOPELESS = 0.25
"""Errors below this fraction of a rounding's size do not contain the rounding, nor the rounding of a coarser format."""
_LEAST, _MOST = 0.2, 0.9
_DEVIATIONS = 8.0
ENOUGH = 64
"""Number of errors for a test of an output in a single call. Smaller outputs are tested over many calls."""
ENOUGH_CALLS = 20
"""Calls for a joint test. A timed submission answers more of them where they could tell (`lacks_calls`)."""
_FIRST_CALLS = 4
"""Calls after which errors far smaller than a rounding are recognised."""
_SAMPLE = 1 << 16
_SAMPLE_OF_SLICES = 1 << 12
_WIDEST = 0.1
"""Relative to the exact values. bf16 rounds by 2**-9; an error of a tenth has another cause."""


def coarser_than(precision: Precision) -> tuple[Format, ...]:
    """Return the formats with fewer bits than a problem's arithmetic; none below half precision.

    fp16 has TF32's mantissa, so its rounding is no finding where TF32 is allowed.
    """
    match precision:
        case Precision.FP32:
            return tuple(Format)
        case Precision.TF32:
            return (Format.BF16,)
        case Precision.BF16 | Precision.FP16:
            return ()


class FormatMatch(NamedTuple):
    """Output with a format's rounding in its errors."""

    path: str
    format: Format

    def name(self, errors: Errors | None) -> str:
        """Return the format's name. TF32 and fp16 have equal mantissas: only outputs in fp16 are named as fp16."""
        if self.format not in (Format.TF32, Format.FP16):
            return self.format.value
        numbers = None if errors is None else half_numbers(errors.actual, errors.honest)
        return numbers or f"{Format.TF32.value} or {Format.FP16.value}"


def sampled(
    actual: torch.Tensor, exact: torch.Tensor, honest: torch.Tensor, dtypes: Collection[torch.dtype] = (torch.float32,)
) -> Errors | None:
    """Return a sample of an output of one of `dtypes`; None for other dtypes, empty outputs and wrong shapes.

    Places come from an operating-system seed: no submission can be correct only at the sampled places.
    """
    count = honest.numel()
    if honest.dtype not in dtypes or not count or actual.shape != honest.shape:
        return None
    return _errors_at(_places(count, _SAMPLE, honest.device), actual, exact, honest)


def sampled_slices(
    slices: Sequence[Slices], actual: torch.Tensor, exact: torch.Tensor, honest: torch.Tensor
) -> Errors | None:
    """Return a sample of slices of a float32 output; None as in `sampled`, and without slices within the output."""
    if honest.dtype != torch.float32 or actual.shape != honest.shape:
        return None
    parts: list[torch.Tensor] = []
    for dim, _, indices, _ in slices:
        extent = honest.shape[dim]
        row_indices = torch.tensor([index for index in indices if 0 <= index < extent], device=honest.device)
        inner = math.prod(honest.shape[dim + 1 :])
        slice_elements = honest.numel() // max(extent, 1)
        chosen = _places(len(row_indices) * slice_elements, _SAMPLE_OF_SLICES, honest.device)
        if chosen.numel():
            within, index = chosen % slice_elements, row_indices[chosen // slice_elements]
            parts.append((within // inner * extent + index) * inner + within % inner)
    return _errors_at(torch.cat(parts), actual, exact, honest) if parts else None


def _places(count: int, most: int, device: torch.device) -> torch.Tensor:
    """Return all numbers below `count`, or `most` random numbers, with an operating-system seed."""
    if count <= most:
        return torch.arange(count, device=device)
    generator = torch.Generator(device)
    generator.seed()
    return torch.randint(count, (most,), generator=generator, device=device)


def _errors_at(places: torch.Tensor, *sides: torch.Tensor) -> Errors:
    """Return the errors at flat `places`. A contiguous tensor needs no index in each dimension: a tenth of the time."""
    if all(side.is_contiguous() for side in sides):
        return Errors(places, *(side.view(-1).index_select(0, places).double() for side in sides))
    at = unravelled(places, sides[0].shape)
    return Errors(places, *(side[at].reshape(-1).double() for side in sides))


def format_of(calls: Sequence[CallErrors], formats: Sequence[Format] = tuple(Format)) -> FormatMatch | None:
    """Return the format whose rounding is in the errors of an output, over all `calls`; None without a match.

    An honest answer usually costs three reference calls, six if the reference has no products, and at most twelve. With
    many `calls`, each of the first four has this cost. The rest follow only if errors are about as large as a rounding.

    Raises:
        MemoryError: no format matches, and a format could not be tried, as rounding takes more memory than float64
        alone.
    """
    together = {path: _stacked([call.outputs.get(path) for call in calls]) for path in calls[0].outputs}
    asked = {path: errors for path, errors in together.items() if errors is not None and _is_worth_it(errors)}
    best, agreement = None, 0.0
    untried: str | None = None
    for way in WAYS:
        left = dict(asked)
        for to in formats:
            try:
                with out_of_memory():
                    roundings = _effects(way, to, calls, left)
            except MemoryError as error:
                untried = f"{to.value}: {error}"
                continue
            for path, rounding in roundings.items():
                errors = left[path]
                candidate = _agreement(errors, rounding) if len(rounding) == len(errors.exact) else 0.0
                if candidate > agreement:
                    best, agreement = FormatMatch(path, to), candidate
                if _hopeless(errors, rounding):
                    del left[path]
    if best is None and untried is not None:
        raise MemoryError(untried)
    return best


def _stacked(calls: Sequence[Errors | None]) -> Errors | None:
    """Return an output's errors as (calls, elements); None if too few, missing in a call, or of unequal number."""
    present = [call for call in calls if call is not None]
    elements = {len(call.exact) for call in present}
    is_enough = len(present) >= ENOUGH_CALLS or (len(present) == 1 and max(elements) >= ENOUGH)
    if len(present) < len(calls) or len(elements) > 1 or not is_enough:
        return None
    return Errors(*(torch.stack(parts) for parts in zip(*present, strict=True)))


def _effects(way: Way, to: Format, calls: Sequence[CallErrors], left: Mapping[str, Errors]) -> dict[str, torch.Tensor]:
    """Return, by path, the errors that a rounding causes in the outputs `left`, over all calls.

    The first few calls suffice if the rounding in every output is zero, or too large to be in the errors.
    """
    parts: dict[str, list[torch.Tensor]] = {path: [] for path in left}
    for number, call in enumerate(calls):
        outputs = {path: call.outputs[path] for path in parts}
        lower = way(call.again, to, outputs) if outputs else {}
        # An output without a value in some call is dropped: not every reference can be computed in fp16.
        parts = {path: [*errors, lower[path] - outputs[path].exact] for path, errors in parts.items() if path in lower}
        if number + 1 == _FIRST_CALLS and not any(_may_be_in(left[path], torch.stack(parts[path])) for path in parts):
            break
    return {path: torch.stack(errors) for path, errors in parts.items()}


def _may_be_in(errors: Errors, rounding: torch.Tensor) -> bool:
    return bool(rounding.any()) and not _hopeless(errors, rounding)


def _is_worth_it(errors: Errors) -> bool:
    """Return whether errors can be tested: finite, nonzero, unlike the plain reference's, not beyond `_WIDEST`."""
    error = errors.actual - errors.exact
    return (
        bool(torch.isfinite(errors.actual[torch.isfinite(errors.exact)]).all())
        and not torch.equal(errors.actual, errors.honest)
        and 0 < float(_finite(error).norm()) <= _WIDEST * float(_finite(errors.exact).norm())
    )


def _finite(values: torch.Tensor) -> torch.Tensor:
    return values[torch.isfinite(values)]


def _hopeless(errors: Errors, rounding: torch.Tensor) -> bool:
    """Return whether errors are too small to contain a rounding, over the calls with a computed rounding."""
    error, rounding, _ = _residuals(errors, rounding)
    return float(error.norm()) < _HOPELESS * float(rounding.norm())


def _agreement(errors: Errors, rounding: torch.Tensor) -> float:
    """Return the partial correlation of an output's errors with a rounding; 0 for errors without the rounding.

    In a single call, the correlation must hold with and without a reduced weight of large values. Else a few large
    values would decide. Of many calls, each has a vote.
    """
    if len(rounding) > 1:
        goes = signs_agree(errors.actual - errors.exact, rounding, errors.exact)
        return _correlation(*_residuals(errors, rounding), len(rounding)) if goes else 0.0
    # If each row and each column has its own rounding, only as many errors are independent as there are rows and
    # columns.
    independent = 2.0 * math.sqrt(int(_are_finite(errors, rounding).sum()))
    ways = [_residuals(errors, rounding, alike=alike) for alike in (False, True)]
    return min(_correlation(*apart, independent) for apart in ways)


def _correlation(error: torch.Tensor, rounding: torch.Tensor, honest: torch.Tensor, independent: float) -> float:
    """Return the correlation of errors with a rounding; 0 for a chance value or a coefficient outside `_COEFFICIENTS`.

    Chance correlations are of the order of 1 / sqrt(`independent`), with `independent` the number of independent
    errors.
    """
    size = float(rounding @ rounding)
    norms = float(error.norm()) * math.sqrt(size)
    if not norms:
        return 0.0
    common = float(error @ rounding)
    least = min(max(_LEAST, _DEVIATIONS / math.sqrt(independent)), _MOST)
    is_in = _COEFFICIENTS[0] < common / size < _COEFFICIENTS[1] and abs(float(honest @ rounding)) < _OWN * size
    return common / norms if is_in and common / norms > least else 0.0


def _are_finite(errors: Errors, rounding: torch.Tensor) -> torch.Tensor:
    return torch.isfinite(rounding) & torch.isfinite(errors.exact) & torch.isfinite(errors.honest)


def _residuals(
    errors: Errors, rounding: torch.Tensor, *, alike: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the errors of an answer, a rounding and the reference, without a constant and without the exact values.

    With `alike`, elements above the median size are scaled down to the median. For many calls, the constant is per
    element: the mean over all calls.
    """
    errors = Errors(*(side[: len(rounding)] for side in errors))
    are_finite = _are_finite(errors, rounding)
    if len(rounding) > 1:
        rows = are_finite.all(1)
        centred = [(side[rows] - side[rows].mean(0)).reshape(-1) for side in _values_and_errors(errors, rounding)]
        return _projected_out(centred, [])
    exact, *sides = (side[are_finite] for side in _values_and_errors(errors, rounding))
    sizes = exact.abs()
    usual = sizes[sizes > 0].median() if alike and bool((sizes > 0).any()) else sizes.new_tensor(torch.inf)
    weights = (usual / sizes).clamp(max=1.0)
    return _projected_out([exact * weights, *(side * weights for side in sides)], [weights])


def _values_and_errors(errors: Errors, rounding: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the exact values, and the errors of the answer, of the rounding and of the plain reference."""
    return errors.exact, errors.actual - errors.exact, rounding, errors.honest - errors.exact


def _projected_out(
    vectors: Sequence[torch.Tensor], constant: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the last three vectors, with `constant` and then the first vector projected out."""
    for one in constant:
        vectors = [_orthogonal_to(values, one) for values in vectors]
    exact, error, rounding, honest = vectors
    return _orthogonal_to(error, exact), _orthogonal_to(rounding, exact), _orthogonal_to(honest, exact)


def _orthogonal_to(values: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
    square = float(one @ one)
    return values - float(values @ one) / square * one if square else values


_LARGEST = 16
"""Number of calls with a vote. Unrelated errors agree in all of them in at most one case of 30 000: of 20 calls, half
lie on each side of a median, giving C(4, 2) / C(20, 10). With more calls, chance agreement is less likely."""


def signs_agree(errors: torch.Tensor, rounding: torch.Tensor, exact: torch.Tensor) -> bool:
    """Return whether errors have the sign of the rounding in the calls with the largest rounding.

    All tensors are float64 of shape (calls, elements). The median of each element is subtracted, since a value equal in
    all calls says nothing. A second pass divides by the exact values, since errors proportional to these values say
    nothing either.
    """
    relative = torch.where(exact == 0, 0.0, 1 / exact)
    return all(_same_side(errors * scale, rounding * scale) for scale in (torch.ones_like(exact), relative))


def _same_side(errors: torch.Tensor, rounding: torch.Tensor) -> bool:
    if len(errors) < _LARGEST:
        return False
    errors, rounding = (values - values.quantile(0.5, dim=0) for values in (errors, rounding))
    largest = rounding.square().sum(1).topk(_LARGEST).indices
    return bool(((errors * rounding).sum(1)[largest] > 0).all())


_ENOUGH = 64
"""Least number of values. A random float32 number has the mantissa of fp16 once in 2**13 times."""
_MOST_HONEST = 1 / 16
"""Part of the reference's values that may be numbers of the format by chance. Of counts and ties, all are."""
_FORMATS = {"bf16": (torch.bfloat16, 8), "fp16": (torch.float16, 11)}
"""Dtype and bits of a mantissa. The coarser first: within fp16's range, every bf16 number is an fp16 number."""
_BINADES, _IN_BINADE, _ODD = 2, 16, 0.25
"""The last bit of a rounded mantissa is set in half of the values, in each binade. Whole numbers and other multiples of
a constant use the last bit in one binade alone."""


def half_numbers(values: torch.Tensor, honest: torch.Tensor) -> str | None:
    """Return "fp16" or "bf16" if all `values` are rounded to this format and the `honest` reference's are not.

    Both may be float32, or in float64 for a comparison. Zeros, infinities and NaN are numbers of every format, and
    count for nothing.

    >>> drawn = torch.randn(999, generator=torch.Generator().manual_seed(1))
    >>> half_numbers(drawn.half().float(), drawn), half_numbers(drawn, drawn), half_numbers(drawn.round(), drawn)
    ('fp16', None, None)
    """
    if values.dtype not in (torch.float32, torch.float64) or values.shape != honest.shape:
        return None
    is_counted = torch.isfinite(values) & (values != 0)
    some, plain = values[is_counted], honest[is_counted]
    if some.numel() < _ENOUGH:
        return None
    for name, (dtype, bits) in _FORMATS.items():
        if bool(_are_numbers(some, dtype).all()):
            is_rounded = _uses_last_bit(some, bits) and bool(_are_numbers(plain, dtype).double().mean() <= _MOST_HONEST)
            return name if is_rounded else None
    return None


def _are_numbers(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return values.to(dtype).to(values.dtype) == values


def _uses_last_bit(values: torch.Tensor, bits: int) -> bool:
    """Return whether values of several binades use the last bit of a mantissa."""
    mantissas, exponents = torch.frexp(values.double())
    is_odd = (mantissas * 2.0**bits).abs() % 2 == 1
    used = 0
    for exponent in sorted(set(exponents.tolist())):
        of_binade = is_odd[exponents == exponent]
        used += of_binade.numel() >= _IN_BINADE and bool(of_binade.double().mean() >= _ODD)
    return used >= _BINADES
