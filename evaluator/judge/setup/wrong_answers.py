"""Distances between surely wrong and expected answers: the evidence in a checked call.

A call is evidence only if the call's tolerance would refuse surely wrong answers, in most elements and by a factor of
`PROOF`:

- the expected output of an independent draw of the inputs;
- the output with an eighth of a reduction left out: every eighth value of the first input is 0, and the rest is larger
  by 8 / 7;
- the output's mean, its row means, its column means, and the product of both over the mean.

The first two depend on the reference alone, and are computed once for a problem, size and distribution. The means are
computed for each checked call. A distance is the median over differing elements, beyond the rounding to the output's
dtype, in tolerances of the usual floor. A call's tolerance multiplies the floor, and leaves this rounding as it is.
Zeros in both answers, as in half of a triangular matrix, say nothing, nor do fill values. If fewer than 1 in
`_LEAST_PART` of the other elements differ, the distance is 0.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

from evaluator.errors import ProblemError
from evaluator.judge.compare.fill_values import fill_from
from evaluator.judge.compare.row_sizes import as_rows, element_scale, has_columns, overview_of
from evaluator.judge.compare.tensor_comparison import Comparison, Sides
from evaluator.judge.compare.tolerance import Bounds, last_place
from evaluator.judge.numerics.rounding_of_call import is_far, results_of_rounding
from evaluator.judge.numerics.summation_orders import limits_of, refused_output
from evaluator.judge.reference.reference import Expected, Reference
from evaluator.judge.tensors.call_arguments import Arguments
from evaluator.judge.tensors.number_formats import are_equal, format_of
from evaluator.protocol.pytree import mapped

PROOF = 8.0
"""Tolerances between an expected and a wrong value, in most elements, that make a call evidence."""
_PART = 8
_LEAST_PART = 16
"""Signs and clamped values are equal in most elements of two answers, and far apart in the others."""
_NEGLIGIBLE = 2.0**-10
"""Part of the largest distance. A batch norm takes a factor away, and differs in the columns left out alone."""
_LEAST_MEANS = 8
"""Rows of fewer elements have no mean to speak of: the mean of a single element is the element."""
_MOST_ELEMENTS = 1 << 20
"""Of larger outputs, the first rows count."""
_MOST = 1e30
"""In place of infinity, unknown to JSON."""
_SAME = 1e-9
"""Relative to the output: an output of constant rows equals the output's row means by definition."""


class WrongAnswers(NamedTuple):
    """Distance of the nearest wrong answer by path, and the same in tolerances of the call.

    `are_told_apart` says whether a comparison refuses any element of a wrong answer that depends on the inputs.
    """

    distances: dict[str, float]
    powers: dict[str, float]
    are_told_apart: bool


def distances_of(
    reference: Reference,
    inputs: Arguments,
    gradients: list[torch.Tensor] | None,
    expected: Expected,
    other: Expected | None,
    compare: Comparison,
) -> WrongAnswers:
    """Return the distances of wrong answers to inputs.

    `other` are the expected values of an independent draw; None if inputs never change, but weights do. Integers and
    codes have the largest distance if `other` has other values, else 0. Results of rounding, on which float64 and the
    plain reference disagree, have 0.
    """
    exact, honest = map(reference.values, (expected.exact, expected.honest))
    independent = {} if other is None else reference.values(other.exact)
    without_part = _without_an_eighth(reference, inputs, gradients, in_float64=expected.in_float64)
    rounding = set() if expected.in_float64 else results_of_rounding(reference, inputs, gradients, expected.honest, 0)
    distances = dict.fromkeys(rounding, 0.0)
    powers = dict.fromkeys(rounding, 0.0)
    limits = limits_of(reference.problem, honest)
    for path, value in honest.items():
        if not isinstance(value, torch.Tensor) or path in rounding:
            continue
        limit = limits[path]
        if not isinstance(limit, Bounds):
            powers[path] = distances[path] = _distance_of_codes(exact[path], independent.get(path))
            continue
        limits[path] = limit = limit._replace(fill=fill_from(value))
        wrong = [independent.get(path)]
        if _changes(without_part.get(path), exact[path]):
            wrong.append(without_part[path])
        answer_distances = [_distance(one, exact[path], limit) for one in wrong if _has_shape(one, value)]
        tolerance = compare(path, Sides(value, exact[path], value), limit)().tolerance or limit.floor
        distances[path] = min([*answer_distances, means_distance(exact[path], limit), _MOST])
        powers[path] = power_of(distances[path], tolerance, limit.floor)
    answers = (independent, without_part)
    # Of an answer that the reference refuses to give, no output is known.
    are_told_apart = any(
        refused_output(reference, answer, expected, limits, compare) is not None for answer in answers if answer
    )
    return WrongAnswers(distances, powers, are_told_apart)


def power_of(distance: float, tolerance: float, usual_floor: float) -> float:
    """Return a distance in tolerances, from a distance measured with the usual floor."""
    return distance * usual_floor / max(tolerance, usual_floor)


def is_noise(reference: Reference, seed: int, path: str) -> bool:
    """Return whether an output is a constant or a result of rounding, as the gradient of a bias before a batch norm is.

    No answer to a constant or noise could be proven right.
    """
    calls = []
    for number in range(2):
        inputs, gradients = reference.draw(seed + number), None
        if reference.problem.backward:
            gradients = reference.output_gradients(reference.forward(inputs, 0), seed + number)
        calls.append((inputs, gradients, reference.expected(inputs, 0, gradients)))
    exact, other = (reference.values(expected.exact).get(path) for _, _, expected in calls)
    if not isinstance(exact, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    inputs, gradients, expected = calls[0]
    if are_equal(exact, other) or is_far(reference.values(expected.honest).get(path), exact):
        return True
    return path in results_of_rounding(reference, inputs, gradients, expected.honest, 0)


def means_distance(exact: torch.Tensor, limit: Bounds) -> float:
    """Return the distance of the nearest answer made of an output's means; infinite without means, 0 of zeros."""
    rows, shape = _real_rows(exact)
    rows = rows[: max(_MOST_ELEMENTS // max(rows.shape[1], 1), _LEAST_MEANS)].double()
    is_counted = torch.isfinite(rows) & (rows.abs() < limit.fill)
    values = torch.where(is_counted, rows, 0.0)
    size = float(values.square().mean().sqrt()) if values.numel() else 0.0
    if values.numel() and not size:
        return 0.0
    means = list(_means(values))
    furthest = [torch.where(is_counted, mean - rows, 0.0).abs().max() for mean in means]
    others = [mean for mean, far in zip(means, _read(furthest), strict=True) if far > _SAME * size]
    yardstick = _yardstick(rows, limit, shape) if others else None
    return min((0.0 if yardstick is None else yardstick.median_to(mean) for mean in others), default=math.inf)


def _without_an_eighth(
    reference: Reference, inputs: Arguments, gradients: list[torch.Tensor] | None, *, in_float64: bool
) -> dict[str, object]:
    """Return the outputs without every eighth value of the first input; empty if the reference refuses them."""
    is_done = False

    def changed(leaf: torch.Tensor) -> torch.Tensor:
        nonlocal is_done
        if is_done or not leaf.is_floating_point() or format_of(leaf.dtype) or not leaf.dim() or leaf.shape[-1] < _PART:
            return leaf
        is_done = True
        part = leaf * (_PART / (_PART - 1))
        part[..., _PART // 2 :: _PART] = 0
        return part

    args, kwargs = mapped(inputs.args, changed), mapped(inputs.kwargs, changed)
    if not is_done:
        return {}
    try:
        mode = contextlib.nullcontext()
        result = reference.altered(Arguments(args, kwargs), 0, gradients, mode, in_float64=in_float64)
    except ProblemError:
        return {}
    return dict(reference.values(result))


def _means(rows: torch.Tensor) -> Iterator[torch.Tensor]:
    if rows.numel() < _LEAST_MEANS:
        return
    mean = rows.mean()
    yield mean.expand_as(rows)
    of_rows, of_columns = rows.mean(1, keepdim=True), rows.mean(0, keepdim=True)
    if min(rows.shape) >= _LEAST_MEANS:
        yield of_rows.expand_as(rows)
        yield of_columns.expand_as(rows)
        yield of_rows * of_columns / mean if float(mean) else torch.zeros_like(rows)


def _read(numbers: list[torch.Tensor]) -> list[float]:
    """Wait once for several numbers."""
    return torch.stack(numbers).tolist() if numbers else []


def _changes(wrong: object, exact: object) -> bool:
    """Return whether 1 in `_LEAST_PART` elements differ at least. Some outputs do not depend on the first input."""
    if not isinstance(wrong, torch.Tensor) or not isinstance(exact, torch.Tensor) or wrong.shape != exact.shape:
        return False
    return int((wrong != exact).sum()) * _LEAST_PART >= exact.numel()


def _has_shape(value: object, like: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and value.shape == like.shape


def _distance_of_codes(value: torch.Tensor, independent: object) -> float:
    if not isinstance(independent, torch.Tensor) or independent.shape != value.shape:
        return _MOST
    return 0.0 if are_equal(independent, value) else _MOST


def _distance(wrong: object, exact: torch.Tensor, limit: Bounds) -> float:
    if not isinstance(wrong, torch.Tensor):
        return math.inf
    rows, shape = _real_rows(exact)
    yardstick = _yardstick(rows.double(), limit, shape)
    return 0.0 if yardstick is None else yardstick.median_to(_real_rows(wrong.to(exact.dtype))[0].double())


def _real_rows(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Size]:
    """Return the rows of an output, and the shape for comparing rows: a complex row has both parts."""
    rows = as_rows(tensor)
    if not tensor.is_complex():
        return rows, tensor.shape
    parts = torch.view_as_real(rows.resolve_conj()).flatten(1)
    return parts, parts.shape


class _Yardstick(NamedTuple):
    """Rows of expected values in float64, and the allowed error and the rounding of each element."""

    exact: torch.Tensor
    allowed: torch.Tensor
    rounding: torch.Tensor

    def median_to(self, wrong: torch.Tensor) -> float:
        """Return the median distance of differing finite elements; infinite without finite elements."""
        beyond = ((wrong - self.exact).abs() - self.rounding).clamp(min=0.0)
        relative = beyond / self.allowed
        is_seen = torch.isfinite(relative) & ((wrong != 0) | (self.exact != 0))
        is_far = is_seen & (wrong != self.exact)
        is_clear = relative > _NEGLIGIBLE * torch.where(is_seen, relative, 0.0).amax()
        is_clear &= is_seen
        seen, far, clear = torch.stack([each.sum() for each in (is_seen, is_far, is_clear)]).tolist()
        if far * _LEAST_PART < seen:
            return 0.0
        counted, count = (is_clear, clear) if clear * _LEAST_PART >= seen > 0 else (is_far, far)
        return float(relative[counted].median()) if count else math.inf


def _yardstick(exact: torch.Tensor, limit: Bounds, shape: torch.Size) -> _Yardstick | None:
    """Return what distances to `exact` are measured with; None for zeros."""
    if not bool(exact.any()):
        return None
    exact = torch.where(exact.abs() < limit.fill, exact, math.nan) if limit.fill < math.inf else exact
    overview = overview_of([[exact, exact, exact]], limit, shape if has_columns(shape) else exact.shape)
    rows = overview.scales[0]
    if rows is None:
        rows = torch.nan_to_num(exact, 0.0, 0.0, 0.0).square().mean(1, keepdim=True).sqrt()
    sizes = exact.abs()
    allowed = limit.floor * element_scale(rows, sizes, overview.columns, shape) + limit.smallest
    return _Yardstick(exact, allowed, limit.unit * last_place(sizes))
