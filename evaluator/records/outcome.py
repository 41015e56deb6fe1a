"""Result of a grade before it becomes a scorecard."""

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from evaluator.records.base import Record
from evaluator.records.build import Build
from evaluator.records.card import RunnerOutput, Weights
from evaluator.records.cases import CaseResult, Score
from evaluator.records.check import Check
from evaluator.records.evidence import OwnKernels, Profiling, Roofline
from evaluator.records.finding import Finding
from evaluator.records.machine import GpuFacts, SandboxFacts
from evaluator.records.machine_code import MachineCode
from evaluator.records.names import Status, Toolchain
from evaluator.records.timing import Baseline, L2Inputs, Timing


class Fault(NamedTuple):
    """Failure of a submission: verdict and reason."""

    status: Status
    finding: Finding


def _nothing_printed() -> RunnerOutput:
    return RunnerOutput(total_bytes=0, text="")


class Outcome(Record, frozen=True):
    """Result so far. An outcome starts as a failure; only the judge's own evidence turns a failure into a pass.

    `toolchains` are the languages of the parsed text; None without a parsed text.
    """

    status: Status = Status.INFRA_ERROR
    reason: Finding | None = None
    build: Build | None = None
    checks: list[Check] = []
    timing: Timing | None = None
    l2: L2Inputs | None = None
    findings: list[Finding] = []
    sandbox: SandboxFacts | None = None
    gpu: GpuFacts | None = None
    roofline: Roofline | None = None
    baselines: list[Baseline] = []
    profiling: Profiling | None = None
    own_kernels: OwnKernels | None = None
    machine_code: MachineCode | None = None
    weights: Weights | None = None
    output: RunnerOutput = msgspec.field(default_factory=_nothing_printed)
    toolchains: list[Toolchain] | None = None
    cases: list[CaseResult] = []
    score: Score | None = None

    @property
    def is_final(self) -> bool:
        """Whether the verdict is decided: a failure with its reason, or `correct`."""
        return self.reason is not None or self.status is Status.CORRECT

    def failed(self, status: Status, reason: Finding) -> "Outcome":
        """Return the outcome with a failure as the verdict."""
        return replace(self, status=status, reason=reason)
