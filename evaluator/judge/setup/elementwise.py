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

import torch

from evaluator.judge.compare.reductions import as_rows
from evaluator.judge.inputs.cancelling_rows import has_shared_elements, input_tensors
from evaluator.judge.reference.operation_cost import cost_of
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.row_sites import LONGEST_S, dependent, outputs_in_float64, tried_rows
from evaluator.judge.tensors.call_arguments import cloned

_LEAST_SIZE = 0.2
"""Least root mean square of a row, on the problem's own values: 2**-21.41 is 1.8e-6 of this size, below a fifth of the
smaller floor. The softplus of a state-space model's steps, about 0.03, is smaller."""
_SEED = 0x5EED
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
