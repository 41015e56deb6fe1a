"""What the judge needs to know of a grade, whatever is submitted."""

from typing import NamedTuple

from evaluator.devices.gpu import Gpu
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind, Problem, SizeName, WeightsRule


class Terms(NamedTuple):
    """A problem, the options of its grades, and the GPU (the one that `cuda` means) and the cores they have."""

    problem: Problem
    options: GradeOptions
    gpu: Gpu | None
    threads: int

    @property
    def device(self) -> DeviceKind:
        """The device that submissions run on."""
        return self.options.device

    @property
    def size(self) -> SizeName:
        """The size that is graded."""
        return self.options.actual_size

    @property
    def weights(self) -> WeightsRule:
        """The weights of calls: as asked for, or as the problem says."""
        return self.options.weights or self.problem.weights
