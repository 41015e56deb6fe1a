"""What a run's index reads of a scorecard: its headlines, without the calls and samples that are most of the file.

A file must have every field that a scorecard has and no other, and what is read is checked as `Scorecard` checks it.
What is skipped (`Raw`) must be JSON, and no more is said of it: whoever reads the whole card finds that out.
"""

from msgspec import Raw

from evaluator.records import DeviceFacts, Finding, ProblemRef, Record, Status, SubmissionRef

_NONE = Raw()


class BuildBrief(Record, frozen=True):
    """Of `records.Build`."""

    ok: bool
    import_s: Raw
    units: Raw


class TimingBrief(Record, frozen=True):
    """Of `records.Timing`."""

    clock: Raw
    reference_before: Raw
    submission: Raw
    reference_after: Raw
    reference_median_ms: Raw
    submission_median_ms: Raw
    speedup: float | None
    resolution_ms: Raw
    reference_low_ms: Raw = _NONE
    reference_high_ms: Raw = _NONE
    submission_low_ms: Raw = _NONE
    submission_high_ms: Raw = _NONE
    speedup_low: float | None = None
    speedup_high: float | None = None
    significant: Raw = _NONE


class Brief(Record, frozen=True, kw_only=True):
    """Of `records.Scorecard`."""

    schema_version: int
    status: Status
    reason: Finding | None
    problem: ProblemRef
    submission: SubmissionRef
    device: DeviceFacts
    environment: Raw
    sandbox: Raw
    tolerance: Raw
    seeds: Raw
    build: BuildBrief | None
    checks: Raw
    timing: TimingBrief | None
    findings: Raw
    output: Raw
    graded_at: str
    stages_s: Raw
    wall_s: float
    roofline: Raw = _NONE
    baselines: Raw = _NONE
    profiling: Raw = _NONE
    own_kernels: Raw = _NONE
    required_own_kernel: Raw = _NONE
