"""GradeTerms of a grade, independent of the submission."""

from typing import NamedTuple

from msgspec.structs import replace

from evaluator.devices.gpu import Gpu
from evaluator.grade_options import GradeOptions
from evaluator.records import Case, CaseName, DeviceKind, GradeMode, L2Rule, Problem, WeightsRule
from evaluator.sizes.cases import HIDDEN, chosen_cases


class GradeTerms(NamedTuple):
    """A problem, the options of its grades, the GPU (for device `cuda`), and the number of CPU cores."""

    problem: Problem
    options: GradeOptions
    gpu: Gpu | None
    threads: int

    @property
    def device(self) -> DeviceKind:
        """Device of the submissions."""
        return self.options.device

    @property
    def size(self) -> CaseName:
        """Name of the card's own case: the first of `cases`."""
        return self.cases[0]

    @property
    def cases(self) -> tuple[CaseName, ...]:
        """Names of the graded cases, without hidden ones, which each grade draws."""
        return chosen_cases(self.problem, self.options.sizes, self.options.case)

    @property
    def draws_hidden(self) -> bool:
        """Whether each grade draws hidden cases: on request, and by default where the problem declares them."""
        options = self.options
        by_default = not options.case and options.size is None
        return bool(self.problem.hidden) and (by_default or HIDDEN in options.case)

    def at(self, case: Case, *, is_hidden: bool = False) -> "GradeTerms":
        """Return the terms with that case alone. A hidden case is timed only on request."""
        problem = replace(self.problem, cases={**self.problem.cases, case.name: case})
        checks_only = is_hidden and HIDDEN not in self.options.case
        mode = GradeMode.CHECK if checks_only else self.options.mode
        return self._replace(problem=problem, options=replace(self.options, size=None, case=(case.name,), mode=mode))

    @property
    def is_timed(self) -> bool:
        """Whether correct submissions are timed."""
        return self.options.is_timed

    @property
    def weights(self) -> WeightsRule:
        """Rule for the weights of calls: the requested rule, else the problem's."""
        return self.options.weights or self.problem.weights

    @property
    def l2(self) -> L2Rule:
        """State of the inputs in the L2 cache when a timed call begins: the requested state, else the problem's."""
        return self.options.l2 or self.problem.l2
