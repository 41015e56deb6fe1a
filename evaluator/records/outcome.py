"""What the judge found out about a submission, before it is written into a scorecard."""

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from evaluator.records.base import Record
from evaluator.records.build import Build
from evaluator.records.card import RunnerOutput, Weights
from evaluator.records.check import Check
from evaluator.records.evidence import OwnKernels, Profiling, Roofline
from evaluator.records.finding import Finding
from evaluator.records.machine import GpuFacts, SandboxFacts
from evaluator.records.names import Status
from evaluator.records.timing import Baseline, Timing


class Fault(NamedTuple):
    """A submission's failure: the verdict it leads to, and why."""

    status: Status
    finding: Finding


def _nothing_printed() -> RunnerOutput:
    return RunnerOutput(total_bytes=0, text="")


class Outcome(Record, frozen=True):
    """What is known of a submission. It starts as a failure; nothing but the judge's own evidence makes it a pass."""

    status: Status = Status.INFRA_ERROR
    reason: Finding | None = None
    build: Build | None = None
    checks: list[Check] = []
    timing: Timing | None = None
    findings: list[Finding] = []
    sandbox: SandboxFacts | None = None
    gpu: GpuFacts | None = None
    roofline: Roofline | None = None
    baselines: list[Baseline] = []
    profiling: Profiling | None = None
    own_kernels: OwnKernels | None = None
    weights: Weights | None = None
    output: RunnerOutput = msgspec.field(default_factory=_nothing_printed)

    def failed(self, status: Status, reason: Finding) -> "Outcome":
        """Settle on a failure."""
        return replace(self, status=status, reason=reason)
