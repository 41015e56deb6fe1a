"""Records of a grade: one frozen `msgspec.Struct` for each noun.

The schemas in `schemas/` are generated from the records. Field names contain units. A float field never contains a
non-finite number: JSON has none, and msgspec would silently write `null`. `number_text` spells such a number as text;
otherwise the field is `None`, and another field counts the non-finite numbers.
"""

from evaluator.records.base import (
    SCHEMA_VERSION,
    Finding,
    LevelNumber,
    Record,
    Seed,
    Sha256,
    finite_or_none,
    number_text,
    seed_text,
)
from evaluator.records.card import (
    CancellingRows,
    Fault,
    Outcome,
    ProblemRef,
    RunnerOutput,
    Scorecard,
    Seeds,
    Signature,
    SubmissionRef,
    Weights,
)
from evaluator.records.check import CaseResult, Check, Mismatch, Quoted, Schedule, Score, TensorCheck
from evaluator.records.evidence import (
    Build,
    BuildUnit,
    Counters,
    DeviceFacts,
    Diagnostic,
    Environment,
    Flips,
    GpuFacts,
    InstructionCount,
    InstructionKind,
    KernelCounters,
    KernelInstructions,
    KernelResources,
    KernelUse,
    MachineCode,
    NumberFormat,
    OwnKernels,
    Profiling,
    Roofline,
    SandboxFacts,
    ShareBasis,
)
from evaluator.records.languages import Toolchain
from evaluator.records.names import (
    BenchmarkRule,
    CheckRule,
    DeviceKind,
    ElementFormat,
    Fill,
    GradeMode,
    L2Rule,
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
    ValuesRule,
    WeightsGraded,
    WeightsRule,
)
from evaluator.records.problem import (
    Admission,
    AxisRange,
    Case,
    CaseName,
    Constant,
    ControlResult,
    Formats,
    MatchedRatio,
    OutputFormat,
    Problem,
    RooflineOverride,
    RowSite,
    ToleranceOverride,
    cases_of,
)
from evaluator.records.timing import (
    Baseline,
    BaselineKind,
    CallKind,
    ClockKind,
    Clocks,
    L2Inputs,
    Samples,
    Tf32,
    Timing,
    Windows,
)
