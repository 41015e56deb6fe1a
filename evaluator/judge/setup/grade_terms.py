"""GradeTerms of a grade, independent of the submission."""

from typing import NamedTuple

from msgspec.structs import replace

from evaluator.devices.gpu import Gpu
from evaluator.grade_options import GradeOptions
from evaluator.records import CaseName, DeviceKind, L2Rule, Problem, WeightsRule


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
        """Graded size of the problem: the first, if there are several."""
        return self.options.sizes[0]

    @property
    def further_sizes(self) -> tuple[CaseName, ...]:
        """Sizes graded after right answers at `size`."""
        return tuple(size for size in self.options.sizes[1:] if size in self.problem.cases)

    def at(self, size: CaseName) -> "GradeTerms":
        """Return the terms with a single size."""
        return self._replace(options=replace(self.options, size=size))

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
