"""Dimensions of a problem's inputs along which rows are independent, found by trial on the reference.

Each candidate row is overwritten once. A dimension is a site if the outputs in float64 change in one slice alone.
"""

import contextlib
import math

import torch

from evaluator.cache.measurements import measured_once
from evaluator.errors import ProblemError
from evaluator.judge.inputs.cancelling_rows import Rows, RowSite, has_shared_elements, input_tensors, write_rows
from evaluator.judge.inputs.input_distributions import is_ordered, left_alone
from evaluator.judge.reference.operation_cost import cost_of
from evaluator.judge.reference.reference import Reference, by_path
from evaluator.judge.tensors.call_arguments import Arguments, cloned
from evaluator.records import Record, SizeName

_RULES = 1
"""Version of the trial; every change invalidates cached sites."""
_SEED = 0x5EED
_LONGEST_S = 2.0
"""Time limit of all trials, on a nominal machine (`Cost.nominal_s`). A problem beyond it has no sites."""
_UNCHANGED = 1e-9
"""Differences of float64 outputs, relative to the largest output, that count as unchanged."""


class RowSites(Record, frozen=True):
    """Sites of a problem."""

    sites: list[RowSite] = []


def row_sites_for(reference: Reference, size: SizeName) -> tuple[RowSite, ...]:
    """Return the sites of a problem, from the cache or by trial at the small size, if the problem has one.

    Which rows are independent does not depend on the size.
    """
    problem = reference.problem
    tried = SizeName.SMALL if SizeName.SMALL in problem.sizes else size
    parts = ["row sites", _RULES, problem.sha256, dict(sorted(problem.sizes[tried].items())), torch.__version__]
    return tuple(measured_once(parts, RowSites, lambda: _tried(reference, tried)).sites)


def _tried(reference: Reference, size: SizeName) -> RowSites:
    with contextlib.suppress(ProblemError):
        return RowSites(find_row_sites(Reference(reference.problem, size, _SEED)))
    return RowSites()


def find_row_sites(reference: Reference) -> list[RowSite]:
    """Return the sites of a reference; none without float64, and none for a reference too slow to try.

    Raises:
        ProblemError: the reference refuses its own inputs.
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
    if nominal_s * 2 * (1 + len(candidates)) > _LONGEST_S:
        return []
    before = _outputs(reference, inputs)
    found: list[RowSite] = []
    for number, dim in candidates:
        changed = cloned(inputs)
        extent = input_tensors(inputs)[number].shape[dim]
        index = extent // 2
        write_rows([Rows(RowSite(number, dim, {}), [index])], changed, _SEED, keep=True)
        outputs = _dependent(before, _outputs(reference, changed), index, extent)
        found += [RowSite(number, dim, outputs)] if outputs else []
    return found


def _is_excluded(leaf: torch.Tensor) -> bool:
    """Return whether rows must stay unchanged: values with a meaning or an order, or elements that share memory."""
    return has_shared_elements(leaf) or left_alone(leaf) or is_ordered(leaf)


def _dependent(
    before: dict[str, torch.Tensor], after: dict[str, torch.Tensor], index: int, extent: int
) -> dict[str, int]:
    """Return, by path, the dimension along which only slice `index` of an output has changed."""
    found: dict[str, int] = {}
    for path, old in before.items():
        new = after.get(path)
        if new is None or new.shape != old.shape or not old.numel():
            continue
        finite = old[torch.isfinite(old)]
        largest = float(finite.abs().max()) if finite.numel() else math.inf
        changed = ~((new - old).abs() <= _UNCHANGED * largest) & (old != new) & ~(old.isnan() & new.isnan())
        count = int(changed.sum())
        for dim in range(old.dim()):
            if count and old.shape[dim] == extent and count == int(changed.select(dim, index).sum()):
                found[path] = dim
                break
    return found


def _outputs(reference: Reference, inputs: Arguments) -> dict[str, torch.Tensor]:
    result = reference.altered(inputs, 0, None, contextlib.nullcontext(), in_float64=True)
    return {
        path: value
        for path, value in by_path(result).items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
