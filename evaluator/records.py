"""What is written down: one frozen record for each noun of a grade.

Every record is a `msgspec.Struct`; `schemas/` is generated from them. Units are in the names. A non-finite number
never stands in a float field (JSON has none, and msgspec would write `null` in silence): it is spelled as text by
`number_text`, or the field is `None` and a count says how many there were.
"""

import math
from enum import StrEnum
from typing import Annotated

import msgspec

SCHEMA_VERSION = 1


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The base of every record: immutable, and strict on reading."""


Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Seed = Annotated[str, msgspec.Meta(pattern="^0x[0-9a-f]{16}$", description="a 63-bit seed, as 0x and 16 digits")]


class Status(StrEnum):
    """The verdict on a submission."""

    CORRECT = "correct"
    WRONG_RESULT = "wrong_result"
    BUILD_ERROR = "build_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    INCONCLUSIVE = "inconclusive"
    INFRA_ERROR = "infra_error"


class DeviceKind(StrEnum):
    """Where a submission is run. Cards of different kinds are never mixed in one metric."""

    CUDA = "cuda"
    EMULATED = "emulated"
    CPU = "cpu"


class SizeName(StrEnum):
    """Which of a problem's sizes is used."""

    FULL = "full"
    SMALL = "small"
    AWKWARD = "awkward"


class Order(StrEnum):
    """The order in which the emulator runs the blocks of a grid and the threads of a block."""

    ASCENDING = "ascending"
    DESCENDING = "descending"
    SHUFFLED = "shuffled"


class Mode(StrEnum):
    """Whether `Model` and `ModelNew` are put in training or evaluation mode."""

    TRAIN = "train"
    EVAL = "eval"


class ToleranceRule(StrEnum):
    """How far an output may be from the expected one.

    `measured`: a multiple of the honest reference's own error against float64, scaled to each row.
    `kernelbench`: that benchmark's rule, atol = rtol = 1e-4 (1e-2 in half precision), against the plain reference.
    """

    MEASURED = "measured"
    KERNELBENCH = "kernelbench"


class Precision(StrEnum):
    """The arithmetic that a problem asks for."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"


class ToleranceOverride(Record, frozen=True):
    """What a problem's author says instead of the measured rule's own numbers; `None` leaves one as it is."""

    multiple: float | None = None
    floor: float | None = None


Constant = bool | int | float | str | list[int]
"""A module-level constant of a reference that a size may set."""


class Problem(Record, frozen=True):
    """A reference `Model` with `get_inputs` and `get_init_inputs`, and what is known about it.

    Reading one runs nothing.

    `source` is the text of the reference as its author wrote it; `sizes` holds, for each size, the constants that
    replace the ones written there. `split` names inputs and the dimension along which they may be cut into blocks
    without changing the rows of the output (its dimension 0), so that float64 fits into memory.
    """

    name: str
    title: str
    level: int
    description: str
    origin: str
    path: str
    source: str
    sha256: Sha256
    sizes: dict[SizeName, dict[str, Constant]]
    precision: Precision
    mode: Mode
    backward: bool
    tolerance: ToleranceOverride
    split: dict[str, int]


class Finding(Record, frozen=True):
    """Something the judge noticed. `code` is explained by `warpgrade explain CODE`."""

    code: str
    message: str
    next_step: str
    line: int | None = None
    details: dict[str, str | int | float | bool | None] = {}


class ProblemRef(Record, frozen=True):
    """Which problem was graded, precisely enough to find it again and to see whether it changed."""

    name: str
    title: str
    level: int
    origin: str
    sha256: Sha256
    size: SizeName
    constants: dict[str, Constant]
    precision: Precision
    mode: Mode
    backward: bool


class SubmissionRef(Record, frozen=True):
    """What was graded. `source` is the Python text that was run, so a card replays without any other file.

    `sha256` is that of `source`; None where no code could be made out.
    """

    name: str
    origin: str
    sha256: Sha256 | None
    source: str
    extracted_from_answer: bool


class Environment(Record, frozen=True):
    """The software and the machine, as the judge sees them."""

    warpgrade: str
    python: str
    torch: str
    compiler: str
    platform: str
    cpu: str
    cpu_cores: int
    memory_bytes: int
    threads: int


class GpuFacts(Record, frozen=True):
    """One GPU: what it is, and how it was before and after the grade."""

    uuid: str
    capability: str
    memory_bytes: int
    driver: str
    sm_mhz: list[int]
    memory_mhz: list[int]
    temperature_c: list[int]


class DeviceFacts(Record, frozen=True):
    """The device that ran the submission."""

    kind: DeviceKind
    name: str
    gpu: GpuFacts | None = None


class SandboxFacts(Record, frozen=True):
    """Which walls stood around the submission, which could not be built here, and the limits inside."""

    mode: str
    layers: list[str]
    missing: list[str]
    memory_bytes: int
    processes: int
    file_bytes: int
    private_folder_bytes: int


class Diagnostic(Record, frozen=True):
    """One message of a compiler, at the submission's own line where it could be found there."""

    severity: str
    message: str
    file: str
    line: int
    column: int
    submission_line: int | None
    source_line: str


class BuildUnit(Record, frozen=True):
    """One extension that the submission asked for."""

    name: str
    key: Sha256
    ok: bool
    cached: bool
    wall_s: float
    diagnostics: list[Diagnostic]
    log: str


class Build(Record, frozen=True):
    """Reading the submission in: its import and the extensions built on the way."""

    ok: bool
    import_s: float
    units: list[BuildUnit]


class Mismatch(Record, frozen=True):
    """One element that differs. The values are text, because they may be NaN or infinite."""

    index: list[int]
    expected: str
    actual: str


class TensorCheck(Record, frozen=True):
    """How one output (or gradient) compares with the expected one.

    `error_ratio` is the largest error as a multiple of what is allowed (at most 1 passes); `None` where an element
    was NaN or infinite and should not have been. `honest_error_ratio` is the same for the plain reference.
    """

    path: str
    dtype: str
    shape: list[int]
    ok: bool
    max_abs_error: float | None
    error_ratio: float | None
    honest_error_ratio: float | None
    mismatches: int
    nonfinite: int
    first_mismatch: Mismatch | None


class Schedule(Record, frozen=True):
    """In which order the emulator ran blocks and threads. `seed` is that of a shuffled order."""

    order: Order
    seed: Seed
    workers: int


class Check(Record, frozen=True):
    """One call on inputs that the submission had never seen, and what came of it.

    On `emulated`, `schedule` says in which order threads ran, and `launches` how many kernels.
    """

    index: int
    profile: str
    seed: Seed
    schedule: Schedule | None
    launches: int | None
    ok: bool
    precision: str
    tensors: list[TensorCheck]
    finding: Finding | None


class ClockKind(StrEnum):
    """Whose time is taken: the host's, around a runner that stands still between calls, or a GPU's, by its events."""

    HOST = "host"
    SEALED = "sealed"


class Samples(Record, frozen=True):
    """The timed calls of one side, in order. Each one's output was verified before the next was let go.

    The first call stands apart, in `first_call_ms`; the runner of `reference_before` has answered one before its clock
    ran, so that of `reference_after` is the one to compare with. `outliers` counts the samples that lie far from the
    rest; they are among `samples_ms` all the same. `host_ms` is how long the host took to queue a call's work on a GPU,
    `overhead_host_ms` the same for a call without the model's own work. A call is void where something else was at work
    on the GPU while its inputs were written; `seeds` has those of void calls too.
    """

    side: str
    seeds: list[Seed]
    samples_ms: list[float]
    overhead_ms: float
    overhead_iqr_ms: float
    median_ms: float
    iqr_ms: float
    first_call_ms: float
    outputs_copied: bool
    host_ms: float | None = None
    void_calls: int = 0
    outliers: int | None = None
    overhead_host_ms: float | None = None


class Timing(Record, frozen=True):
    """The reference before and after, the submission between them, by the judge's clock.

    `overhead_ms` of each side (a call that does nothing, in a runner that never loaded a submission) is already
    taken off its samples. `resolution_ms` is how far a time of this clock may be off, either way.

    `*_low*` and `*_high*` are the ends of 95 % intervals, the clock's resolution among them. An end of the speedup's is
    None where nothing bounds it; the speedup itself is None where its interval is wider than 5 %. It is `significant`
    where the interval excludes 1 and both its ends are known. All of these are None in a card from before there were
    any.
    """

    clock: ClockKind
    reference_before: Samples
    submission: Samples
    reference_after: Samples
    reference_median_ms: float
    submission_median_ms: float
    speedup: float | None
    resolution_ms: float
    reference_low_ms: float | None = None
    reference_high_ms: float | None = None
    submission_low_ms: float | None = None
    submission_high_ms: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    significant: bool | None = None


class Seeds(Record, frozen=True):
    """The seeds that are not written beside a call. They are drawn fresh for every grade and revealed here."""

    weight: Seed
    replayed_from: str | None


class RunnerOutput(Record, frozen=True):
    """What the submission printed: untrusted text, cut to its beginning and end."""

    total_bytes: int
    text: str


class Scorecard(Record, frozen=True, kw_only=True):
    """The record of one grade: everything needed to believe it, and to repeat it."""

    schema_version: int = SCHEMA_VERSION
    status: Status
    reason: Finding | None
    problem: ProblemRef
    submission: SubmissionRef
    device: DeviceFacts
    environment: Environment
    sandbox: SandboxFacts | None
    tolerance: ToleranceRule
    seeds: Seeds | None
    build: Build | None
    checks: list[Check]
    timing: Timing | None
    findings: list[Finding]
    output: RunnerOutput
    graded_at: str
    stages_s: dict[str, float]
    wall_s: float


def number_text(value: float) -> str:
    """Spell a number that may be NaN or infinite, so that it survives JSON.

    >>> number_text(float("nan")), number_text(0.5), number_text(3)
    ('nan', '0.5', '3')
    """
    return repr(value)


def finite_or_none(value: float) -> float | None:
    """Give `value` back if JSON can hold it.

    >>> finite_or_none(1.5), finite_or_none(float("inf"))
    (1.5, None)
    """
    return value if math.isfinite(value) else None


def seed_text(seed: int) -> str:
    """Write a seed as it stands in a card: JSON's numbers lose precision from 2**53 on.

    >>> seed_text(255)
    '0x00000000000000ff'
    """
    return f"0x{seed:016x}"
