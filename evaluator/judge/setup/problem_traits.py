"""Traits of a problem, found by trial on the reference before the first call.

Independent rows of inputs, elementwise outputs, and unusable input distributions (`distribution_trials`). The trials
run once for a problem: at the small size on the CPU, else at the grade's size. Traits seldom depend on the size;
`Slices.fit` leaves out exceptions among row sites, and outputs of a call that are infinite at the grade's size alone
are void (`CallLimits`).

Row sites are dimensions along which rows are independent. Three rows along each dimension are changed. The dimension is
a site if the outputs in float64 change in three slices, and far less elsewhere: a share of the mean of all rows depends
on the other rows a little.

Elementwise outputs have no sums, so that no order of summation excuses an error. A row along a dimension of an input
gets the values of another draw. If a single slice of an output changes, and nothing else, an output element depends on
a single row. If rows along every dimension of an input have this effect, an output element depends on a single element
of the input. The trial observes values, so every operation counts, of PyTorch or of another library. Other signs alone
would change no norm, and several rows at once may be a row and its counterpart in a flip.

CUDA's intrinsics for logarithms and sines have absolute errors: `__logf` 2**-21.41 near 1, `__sinf` 2**-21.41 (CUDA C++
Programming Guide, "Intrinsic Functions"). A sigmoid by tanh is off by 2**-25. Beside small outputs these errors are
large, and outputs with small rows keep the usual floor.
"""

import contextlib
import math

import torch
from msgspec.structs import replace

from evaluator.cache.build_cache import measured_once
from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.compare.row_sizes import as_rows
from evaluator.judge.reference.cancelling_rows import Rows, has_shared_elements, input_tensors, write_rows
from evaluator.judge.reference.input_distributions import RULES, is_ordered, left_alone
from evaluator.judge.reference.reference import Expected, Reference, by_path
from evaluator.judge.setup.distribution_trials import unusable
from evaluator.judge.setup.operation_cost import cost_of
from evaluator.judge.tensors.call_arguments import Arguments, cloned
from evaluator.judge.tensors.number_formats import format_of, wide
from evaluator.records import CaseName, CheckRule, Problem, Profile, Record, RowSite, SizeName

_SEED = 0x5EED


class ProblemTraits(Record, frozen=True):
    """Where rows of inputs are independent, paths of elementwise outputs, and unusable distributions with reasons."""

    sites: list[RowSite] = []
    elementwise: list[str] = []
    left_out: dict[Profile, str] = {}


def traits_of(problem: Problem, size: CaseName, device: str) -> ProblemTraits:
    """Return the traits of a problem, from the cache or by trials at the small size, else at `size` on `device`.

    Raises:
        ProblemError: the reference refuses its own inputs.
        MemoryError: memory is too small.
    """
    if SizeName.SMALL in problem.cases and (size, device) != (SizeName.SMALL, "cpu"):
        try:
            return traits_of(problem, SizeName.SMALL, "cpu")
        except ProblemError:  # A reference may be for a GPU alone.
            pass
    constants = dict(sorted(problem.cases[size].axes.items()))
    parts = ["traits", RULES, problem.sha256, constants, torch.__version__, device]
    return measured_once(parts, ProblemTraits, lambda: _by_trials(problem, size, device))


def _leave_float64_if_it_fails(reference: Reference) -> None:
    try:
        if reference.exact_model is not None:
            outputs_in_float64(reference, reference.draw(_SEED))
    except ProblemError:
        reference.leave_float64()


def _by_trials(problem: Problem, size: CaseName, device: str) -> ProblemTraits:
    with out_of_memory():
        reference = Reference(problem, size, _SEED, device)
        if reference.float64_ran_out:
            raise MemoryError("float64 does not fit")
        reference.float64_must_fit = True
        reference.check_formats()
        _leave_float64_if_it_fails(reference)
        left_out = unusable(reference)
        if problem.check is CheckRule.INSTEAD:  # Rows with other signs may leave the check's domain.
            return ProblemTraits([], [], left_out)
        elementwise = [] if Profile.SIGNED_NORMAL in left_out else sorted(find_elementwise(reference))
        return ProblemTraits(find_row_sites(reference), elementwise, left_out)


LONGEST_S = 2.0
"""Time limit of all trials, on a nominal machine (`Cost.nominal_s`). A problem beyond the limit has no sites."""
_FAR_LESS = 1 / 4
"""Change elsewhere, relative to the change of the slices (root mean squares)."""
_UNCHANGED = 1e-9
"""Differences of float64 outputs, relative to the largest output, that count as unchanged."""


def tried_rows(extent: int) -> list[int]:
    """Return the rows to change: the first and the last may be special cases, as in x - x[:1]."""
    return sorted({0, extent // 2, extent - 1})


def find_row_sites(reference: Reference) -> list[RowSite]:
    """Return the sites of a reference; none without float64, and none for a reference too slow to try.

    Raises:
        ProblemError: the reference refuses its own inputs, or inputs with random signs.
    """
    inputs = reference.draw(_SEED)
    if reference.exact_model is None:
        return []
    candidates = [
        (number, dim)
        for number, leaf in enumerate(input_tensors(inputs))
        if not _is_excluded(leaf)
        for dim, extent in enumerate(leaf.shape)
        if extent > 1
    ]
    nominal_s = cost_of(lambda: reference.forward(inputs, 0)).nominal_s(reference.device.type)
    if nominal_s * 2 * (3 + len(candidates)) > LONGEST_S:
        return []
    before = outputs_in_float64(reference, inputs)
    sites = [site for number, dim in candidates if (site := _site(reference, inputs, before, number, dim)) is not None]
    takes_signs, takes_concentrated = (_accepts(reference, inputs, sites, concentrated=kind) for kind in (False, True))
    if not takes_signs and not takes_concentrated:
        return []
    return [replace(site, signs=takes_signs, concentrated=takes_concentrated) for site in sites]


def _site(
    reference: Reference, inputs: Arguments, before: dict[str, torch.Tensor], number: int, dim: int
) -> RowSite | None:
    """Return the site along `dim` of an input tensor, if three changed rows change three slices and little else."""
    extent = input_tensors(inputs)[number].shape[dim]
    indices = tried_rows(extent)
    for concentrated in (False, True):  # Signs change nothing in a norm, and the logarithm of a sum refuses signs.
        changed = cloned(inputs)
        write_rows([Rows(RowSite(number, dim, {}), extent, indices, concentrated)], changed, _SEED, keep=True)
        with contextlib.suppress(ProblemError):
            outputs = _mostly_dependent(before, outputs_in_float64(reference, changed), indices, extent)
            if outputs:
                return RowSite(number, dim, outputs)
    return None


def _mostly_dependent(
    before: dict[str, torch.Tensor], after: dict[str, torch.Tensor], indices: list[int], extent: int
) -> dict[str, int]:
    """Return, by path, the dimension along which the slices `indices` of an output have changed far more than others.

    Infinite values and NaN count as unchanged.
    """
    dims: dict[str, int] = {}
    for path, old in before.items():
        new = after.get(path)
        if new is None or new.shape != old.shape or not old.numel():
            continue
        change = torch.nan_to_num(new - old, 0.0, 0.0, 0.0).square()
        least = (_UNCHANGED * float(torch.nan_to_num(old, 0.0, 0.0, 0.0).abs().max())) ** 2
        for dim in range(old.dim()):
            if old.shape[dim] != extent:
                continue
            of_slices = change.movedim(dim, 0).reshape(extent, -1).mean(1)
            slices = of_slices[indices]
            others = [index for index in range(extent) if index not in indices]
            elsewhere = float(of_slices[others].mean()) if others else 0.0
            if float(slices.min()) > least and elsewhere <= _FAR_LESS**2 * float(slices.mean()):
                dims[path] = dim
                break
    return dims


def _accepts(reference: Reference, inputs: Arguments, sites: list[RowSite], *, concentrated: bool) -> bool:
    """Return whether the reference computes inputs with every second row changed, as finitely as its own inputs."""
    changed = cloned(inputs)
    for number in {site.tensor for site in sites}:
        site = next(site for site in sites if site.tensor == number)
        extent = input_tensors(changed)[number].shape[site.dim]
        write_rows([Rows(site, extent, list(range(0, extent, 2)), concentrated)], changed, _SEED, keep=True)
    try:
        expected, of_changed = (reference.expected(call_inputs, 0, None) for call_inputs in (inputs, changed))
    except ProblemError:
        return False
    finite = [_finite_outputs(values) for values in (expected, of_changed)]
    return of_changed.in_float64 and all(bool((after | ~before).all()) for before, after in zip(*finite, strict=True))


def _finite_outputs(expected: Expected) -> list[torch.Tensor]:
    values = by_path(expected.honest).values()
    return [torch.isfinite(wide(value)) for value in values if isinstance(value, torch.Tensor)]


def _is_excluded(leaf: torch.Tensor) -> bool:
    """Return whether rows must stay unchanged: values with a meaning or an order, or elements that share memory."""
    return has_shared_elements(leaf) or left_alone(leaf) or is_ordered(leaf)


def dependent(
    before: dict[str, torch.Tensor], after: dict[str, torch.Tensor], indices: list[int], extent: int
) -> dict[str, int]:
    """Return, by path, the dimension along which only the slices `indices` of an output have changed."""
    dims: dict[str, int] = {}
    for path, old in before.items():
        new = after.get(path)
        if new is None or new.shape != old.shape or not old.numel():
            continue
        finite = old[torch.isfinite(old)]
        largest = float(finite.abs().max()) if finite.numel() else math.inf
        changed = ~((new - old).abs() <= _UNCHANGED * largest) & (old != new) & ~(old.isnan() & new.isnan())
        count = int(changed.sum())
        for dim in range(old.dim()):
            if not count or old.shape[dim] != extent:
                continue
            changed_counts = [int(changed.select(dim, index).sum()) for index in indices]
            if all(changed_counts) and sum(changed_counts) == count:
                dims[path] = dim
                break
    return dims


def outputs_in_float64(reference: Reference, inputs: Arguments) -> dict[str, torch.Tensor]:
    """Return the outputs of floating-point dtypes in float64, by path; without codes of few bits."""
    result = reference.altered(inputs, 0, None, contextlib.nullcontext(), in_float64=True)
    return {
        path: value
        for path, value in by_path(result).items()
        if isinstance(value, torch.Tensor) and value.is_floating_point() and format_of(value.dtype) is None
    }


_LEAST_SIZE = 0.2
"""Least root mean square of a row, on the problem's own values: 2**-21.41 is 1.8e-6 of this size, below a fifth of the
smaller floor. The softplus of a state-space model's steps, about 0.03, is smaller."""
_OTHER_SEED = 0x5EEE


def find_elementwise(reference: Reference) -> set[str]:
    """Return the paths of a reference's outputs whose elements each depend on a single element of each input.

    None of a model with weights, since a forward may add up weights; none without float64; none if a trial is too slow.

    Raises:
        ProblemError: the reference refuses its own inputs.
    """
    if reference.problem.backward or [*reference.model.parameters(), *reference.model.buffers()]:
        return set()
    inputs, other_inputs = reference.draw(_SEED), reference.draw(_OTHER_SEED)
    tensors, other_tensors = input_tensors(inputs), input_tensors(other_inputs)
    if reference.exact_model is None or [leaf.shape for leaf in tensors] != [leaf.shape for leaf in other_tensors]:
        return set()
    dims = [(number, dim) for number, leaf in enumerate(tensors) for dim, extent in enumerate(leaf.shape) if extent > 1]
    rows = [(number, dim, index) for number, dim in dims for index in tried_rows(tensors[number].shape[dim])]
    nominal_s = cost_of(lambda: reference.forward(inputs, 0)).nominal_s(reference.device.type)
    if nominal_s * 2 * (1 + len(rows)) > LONGEST_S or any(map(has_shared_elements, tensors)):
        return set()
    before = outputs_in_float64(reference, inputs)
    paths = {path for path, value in before.items() if rows and _least_row(value) >= _LEAST_SIZE}
    for number, dim, index in rows:
        if not paths:
            break
        changed = cloned(inputs)
        input_tensors(changed)[number].select(dim, index).copy_(other_tensors[number].select(dim, index))
        after = outputs_in_float64(reference, changed)
        paths &= set(dependent(before, after, [index], tensors[number].shape[dim]))
    return paths


def _least_row(output: torch.Tensor) -> float:
    """Return the smallest root mean square of an output's rows; 0 without rows, and NaN with a NaN."""
    rows = as_rows(output)
    return float((torch.linalg.vector_norm(rows, dim=1) / rows.shape[1] ** 0.5).amin()) if rows.numel() else 0.0
