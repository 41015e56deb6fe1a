"""Traits of a problem, found by trial on the reference before the first call.

Independent rows of inputs (`row_sites`), elementwise outputs (`elementwise`), and products of many factors. The trials
run once for a problem: at the small size on the CPU, else at the grade's size. Traits seldom depend on the size;
`Slices.fit` leaves out exceptions among row sites.
"""

import contextlib

import torch

from evaluator.cache.measurements import measured_once
from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.inputs.input_distributions import RULES
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.elementwise import find_elementwise
from evaluator.judge.setup.product_range import multiplies
from evaluator.judge.setup.row_sites import find_row_sites
from evaluator.records import Problem, Record, RowSite, SizeName

_SEED = 0x5EED


class ProblemTraits(Record, frozen=True):
    """Where rows of inputs are independent, paths of elementwise outputs, and whether forward multiplies factors."""

    sites: list[RowSite] = []
    elementwise: list[str] = []
    multiplies: bool = False


NO_TRAITS = ProblemTraits()


def traits_of(problem: Problem, size: SizeName, device: str) -> ProblemTraits:
    """Return the traits of a problem, from the cache or by trials at the small size, else at `size` on `device`.

    A reference that refuses its own inputs has no traits. Raises MemoryError.
    """
    if SizeName.SMALL in problem.sizes:
        size, device = SizeName.SMALL, "cpu"
    constants = dict(sorted(problem.sizes[size].items()))
    parts = ["traits", RULES, problem.sha256, constants, torch.__version__, device]
    return measured_once(parts, ProblemTraits, lambda: _by_trials(problem, size, device))


def _by_trials(problem: Problem, size: SizeName, device: str) -> ProblemTraits:
    traits = NO_TRAITS
    with contextlib.suppress(ProblemError), out_of_memory():
        reference = Reference(problem, size, _SEED, device)
        if reference.float64_ran_out:
            raise MemoryError("float64 does not fit")
        reference.float64_must_fit = True
        traits = ProblemTraits(multiplies=multiplies(reference, reference.draw(_SEED)))
        traits = ProblemTraits(find_row_sites(reference), sorted(find_elementwise(reference)), traits.multiplies)
    return traits
