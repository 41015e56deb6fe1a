"""Records of a grade: one frozen `msgspec.Struct` for each noun.

The schemas in `schemas/` are generated from the records. Field names contain units. A float field never contains a
non-finite number: JSON has none, and msgspec would silently write `null`. `number_text` spells such a number as text;
otherwise the field is `None`, and another field counts the non-finite numbers.
"""

from evaluator.records.admission import Admission, ControlResult
from evaluator.records.base import SCHEMA_VERSION, Record, Seed, Sha256, finite_or_none, number_text, seed_text
from evaluator.records.build import Build, BuildUnit, Diagnostic
from evaluator.records.card import (
    CancellingRows,
    ProblemRef,
    RunnerOutput,
    Scorecard,
    Seeds,
    Signature,
    SubmissionRef,
    Weights,
)
from evaluator.records.check import Check, Mismatch, Schedule, TensorCheck
from evaluator.records.evidence import (
    Counters,
    Flips,
    KernelCounters,
    KernelResources,
    KernelUse,
    OwnKernels,
    Profiling,
    Roofline,
    ShareBasis,
)
from evaluator.records.finding import Finding
from evaluator.records.machine import DeviceFacts, Environment, GpuFacts, SandboxFacts
from evaluator.records.names import (
    DeviceKind,
    Fill,
    Layout,
    Mode,
    Order,
    Precision,
    Profile,
    ProfilerKind,
    SandboxMode,
    SizeName,
    Status,
    ToleranceRule,
    Toolchain,
    ValuesRule,
    WeightsGraded,
    WeightsRule,
)
from evaluator.records.outcome import Fault, Outcome
from evaluator.records.problem import Constant, Problem, RooflineOverride, ToleranceOverride
from evaluator.records.timing import Baseline, BaselineKind, ClockKind, Samples, Tf32, Timing, Windows

__all__ = [
    "SCHEMA_VERSION",
    "Admission",
    "Baseline",
    "BaselineKind",
    "Build",
    "BuildUnit",
    "CancellingRows",
    "Check",
    "ClockKind",
    "Constant",
    "ControlResult",
    "Counters",
    "DeviceFacts",
    "DeviceKind",
    "Diagnostic",
    "Environment",
    "Fault",
    "Fill",
    "Finding",
    "Flips",
    "GpuFacts",
    "KernelCounters",
    "KernelResources",
    "KernelUse",
    "Layout",
    "Mismatch",
    "Mode",
    "Order",
    "Outcome",
    "OwnKernels",
    "Precision",
    "Problem",
    "ProblemRef",
    "Profile",
    "ProfilerKind",
    "Profiling",
    "Record",
    "Roofline",
    "RooflineOverride",
    "RunnerOutput",
    "Samples",
    "SandboxFacts",
    "SandboxMode",
    "Schedule",
    "Scorecard",
    "Seed",
    "Seeds",
    "Sha256",
    "ShareBasis",
    "Signature",
    "SizeName",
    "Status",
    "SubmissionRef",
    "TensorCheck",
    "Tf32",
    "Timing",
    "ToleranceOverride",
    "ToleranceRule",
    "Toolchain",
    "ValuesRule",
    "Weights",
    "WeightsGraded",
    "WeightsRule",
    "Windows",
    "finite_or_none",
    "number_text",
    "seed_text",
]
