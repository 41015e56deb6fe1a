"""What the judge found out about a submission, before it is written into a scorecard."""

import msgspec
from msgspec.structs import replace

from evaluator.records import (
    Baseline,
    Build,
    Check,
    Finding,
    GpuFacts,
    OwnKernels,
    Profiling,
    Record,
    Roofline,
    RunnerOutput,
    SandboxFacts,
    Status,
    Timing,
    Weights,
)


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
