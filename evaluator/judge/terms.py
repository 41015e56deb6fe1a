"""What was asked of a grade."""

from typing import NamedTuple

from evaluator.devices.gpu import Gpu
from evaluator.isolation import SandboxMode
from evaluator.records import BaselineKind, DeviceKind, Problem, ProfilerKind, SizeName, ToleranceRule, WeightsRule
from evaluator.submission.read import Submission


class Terms(NamedTuple):
    """What was asked for. `timeout_s` is for each stage of the submission; None leaves the choice to the judge.

    `gpu` is the one that `cuda` means.
    """

    problem: Problem
    device: DeviceKind
    gpu: Gpu | None
    size: SizeName
    tolerance: ToleranceRule
    sandbox: SandboxMode
    timeout_s: float | None
    build_timeout_s: float
    threads: int
    require_own_kernel: float | None = None
    strict: bool = False
    baselines: tuple[BaselineKind, ...] = ()
    speedup_of: Submission | None = None
    profile: ProfilerKind | None = None
    weights: WeightsRule = WeightsRule.CHANGING
