"""Elementwise maps: outputs without sums, so that no order of summation excuses an error.

A row along a dimension of an input gets the values of another draw. If a single slice of an output changes, and nothing
else, an output element depends on a single row. If rows along every dimension of an input have this effect, an output
element depends on a single element of the input. The trial observes values, so every operation counts, of PyTorch or of
another library. Random signs as in `row_sites` would not do: no norm changes with the signs. Nor would several rows at
once: all rows of a short dimension would be changed, or a row and its counterpart in a flip.

CUDA's intrinsics for logarithms and sines have absolute errors: `__logf` 2**-21.41 near 1, `__sinf` 2**-21.41 (CUDA C++
Programming Guide, "Intrinsic Functions"). A sigmoid by tanh is off by 2**-25. Beside small outputs these errors are
large, and outputs with small rows keep the usual floor.
"""

import contextlib

import torch

from evaluator.cache.measurements import measured_once
from evaluator.catalog.lock import RowSitesLock
from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.compare.reductions import as_rows
from evaluator.judge.inputs.cancelling_rows import has_shared_elements, input_tensors
from evaluator.judge.reference.operation_cost import cost_of
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.row_sites import (
    LONGEST_S,
    SITE_RULES,
    dependent,
    known_rows,
    outputs_in_float64,
    sites_to_keep,
    tried_at,
    tried_rows,
)
from evaluator.judge.tensors.call_arguments import cloned
from evaluator.records import Problem, Record, SizeName

_LEAST_SIZE = 0.2
"""Least root mean square of a row, on the problem's own values: 2**-21.41 is 1.8e-6 of this size, below a fifth of the
smaller floor. The softplus of a state-space model's steps, about 0.03, is smaller."""
_SEED, _OTHER_SEED = 0x5EED, 0x5EEE


class _Elementwise(Record, frozen=True):
    """Paths of a problem's elementwise outputs, in ascending order."""

    paths: list[str] = []


def elementwise_outputs(reference: Reference, size: SizeName) -> frozenset[str]:
    """Return the paths of outputs whose elements each depend on a single element of each input.

    None of a model with weights, which a forward may add up, and none, for this grade alone, if memory is short.
    """
    try:
        return _stored_or_tried(reference, size)
    except MemoryError:
        return frozenset()


def rows_to_keep(reference: Reference, size: SizeName) -> RowSitesLock:
    """Return the row sites and the elementwise outputs of a problem, for its lock. Raises MemoryError."""
    sites, paths = sites_to_keep(reference, size), _stored_or_tried(reference, size)
    return RowSitesLock(rules=SITE_RULES, sites=list(sites), elementwise=sorted(paths))


def _stored_or_tried(reference: Reference, size: SizeName) -> frozenset[str]:
    """Return the paths from the problem's lock or the cache. Else try: at the small size on the CPU, or at `size`."""
    problem = reference.problem
    if problem.backward or [*reference.model.parameters(), *reference.model.buffers()]:
        return frozenset()
    lock = known_rows(problem)
    if lock is not None and lock.elementwise is not None:
        return frozenset(lock.elementwise)
    trial_size, device = tried_at(problem, size, reference.device.type)
    constants = dict(sorted(problem.sizes[trial_size].items()))
    parts = ["elementwise", SITE_RULES, problem.sha256, constants, torch.__version__, device]
    return frozenset(measured_once(parts, _Elementwise, lambda: _by_trials(problem, trial_size, device)).paths)


def _by_trials(problem: Problem, size: SizeName, device: str) -> _Elementwise:
    """Return the paths; none if the reference refuses its inputs. Raises MemoryError."""
    with contextlib.suppress(ProblemError), out_of_memory():
        reference = Reference(problem, size, _SEED, device)
        if reference.float64_ran_out:
            raise MemoryError("float64 does not fit")
        return _Elementwise(sorted(find_elementwise(reference)))
    return _Elementwise()


def find_elementwise(reference: Reference) -> set[str]:
    """Return the paths of a reference's elementwise outputs; none without float64, and none if a trial is too slow.

    Raises:
        ProblemError: the reference refuses its own inputs.
    """
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
