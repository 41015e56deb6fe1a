"""Traits of a problem, found by trial on the reference before the first call.

Independent rows of inputs (`row_sites`), elementwise outputs (`elementwise`), and unusable input distributions
(`distribution_trials`). The trials run once for a problem: at the small size on the CPU, else at the grade's size.
Traits seldom depend on the size; `Slices.fit` leaves out exceptions among row sites, and outputs of a call that are
infinite at the grade's size alone are void (`CallLimits`).
"""

import torch

from evaluator.cache.measurements import measured_once
from evaluator.devices.out_of_memory import out_of_memory
from evaluator.errors import ProblemError
from evaluator.judge.inputs.input_distributions import RULES
from evaluator.judge.reference.reference import Reference
from evaluator.judge.setup.distribution_trials import unusable
from evaluator.judge.setup.elementwise import find_elementwise
from evaluator.judge.setup.row_sites import find_row_sites, outputs_in_float64
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
