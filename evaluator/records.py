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


class Profile(StrEnum):
    """From which distribution the values of a call's inputs come; `evaluator/judge/profiles.py` draws them."""

    AS_GIVEN = "as_given"
    SIGNED_NORMAL = "signed_normal"
    MIXED_MAGNITUDES = "mixed_magnitudes"
    ZEROS_AND_TIES = "zeros_and_ties"
    LARGE = "large"
    SMALL = "small"
    CONSTANT_ROWS = "constant_rows"
    OUTLIERS = "outliers"
    ILL_CONDITIONED = "ill_conditioned"


class Layout(StrEnum):
    """How a tensor may lie in memory, beside the way that `get_inputs` gives it.

    `transposed`: its last two dimensions change places in memory. `gaps`: every second element of a wider one.
    `offset`: an element behind an aligned address.
    """

    TRANSPOSED = "transposed"
    GAPS = "gaps"
    OFFSET = "offset"


class ToleranceOverride(Record, frozen=True):
    """What a problem's author says instead of the measured rule's own numbers; `None` leaves one as it is."""

    multiple: float | None = None
    floor: float | None = None


Constant = bool | int | float | str | list[int]
"""A module-level constant of a reference that a size may set."""


class RooflineOverride(Record, frozen=True):
    """What a problem's author knows of its bytes and operations and counting cannot see, and the `reason`.

    Each is a formula of the reference's constants, such as `4 * n * (n + 1) // 2`; None leaves what is counted.
    """

    reason: str
    read_bytes: str | None = None
    written_bytes: str | None = None
    flop: str | None = None


class Problem(Record, frozen=True):
    """A reference `Model` with `get_inputs` and `get_init_inputs`, and what is known about it.

    Reading one runs nothing.

    `source` is the text of the reference as its author wrote it; `sizes` holds, for each size, the constants that
    replace the ones written there. `split` names inputs and the dimension along which they may be cut into blocks
    without changing the rows of the output (its dimension 0), so that float64 fits into memory. `profiles` has what the
    author says of value profiles: a reason to leave one out, or true to use it whatever the reference shows; `layouts`
    are those that inputs may have in memory.
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
    roofline: RooflineOverride | None = None
    profiles: dict[Profile, str | bool] = {}
    layouts: list[Layout] = []


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
    profile: Profile
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
    on the GPU while its inputs were written. `seeds` has those of all calls: of void ones too, and of the `other_calls`
    whose inputs had other values than the problem's own. The samples are of calls as given alone.
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
    other_calls: int = 0
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


class BaselineKind(StrEnum):
    """What a submission's time is held against beside the reference that every grade measures.

    `compile-max-autotune` is torch.compile without CUDA graphs, whose outputs a later call overwrites.
    """

    EAGER = "eager"
    COMPILE = "compile"
    COMPILE_MAX_AUTOTUNE = "compile-max-autotune"
    SUBMISSION = "submission"


class Tf32(StrEnum):
    """Whether a GPU's products may round their fp32 operands to TF32: never, as PyTorch has it by default, always.

    By default convolutions may and matrix products may not.
    """

    OFF = "off"
    DEFAULT = "default"
    ON = "on"


class Baseline(Record, frozen=True):
    """Another program of the same problem, timed by the same clock in a runner of its own, every output verified.

    `tf32` is None on a device that has none. `name` and `sha256` are those of another submission. `measured_at` says
    when: what does not depend on a submission's code is kept, and `kept` then, as it was measured for another grade,
    beside a reference that took `reference_median_ms`.
    The speedup is the submission's over this one; None where its interval is wider than 5 %, or where there are no
    `samples`: then `finding` says why.
    """

    kind: BaselineKind
    tf32: Tf32 | None
    name: str | None
    sha256: Sha256 | None
    measured_at: str
    kept: bool
    reference_median_ms: float | None
    samples: Samples | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    significant: bool | None
    finding: Finding | None


class KernelUse(Record, frozen=True):
    """A kernel of one call, by the name that a profiler gave it: how often it ran, and for how long in all.

    On `cpu` it is an operation of PyTorch's. `own` says whether the name is among the kernels that were built from the
    submission; None on `cpu`.
    """

    name: str
    launches: int
    time_us: float
    own: bool | None


class KernelResources(Record, frozen=True):
    """What a thread (registers, stack, spills) and a block (shared memory) of a kernel take, as ptxas says."""

    name: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int


class Profiling(Record, frozen=True):
    """Where the time of one call goes: one that is neither timed nor compared, in a runner of its own.

    It is what the submission's own process saw, and decides nothing unless a grade asks for own kernels. `kernels` are
    those that took longest, `other_kernels` counts the rest; `own_share` is the part of the time in own kernels.
    `resources` are the compiler's. `finding` says why there is nothing.
    """

    kernels: list[KernelUse]
    other_kernels: int
    launches: int
    time_us: float
    own_share: float | None
    resources: list[KernelResources]
    finding: Finding | None = None


class Flips(Record, frozen=True):
    """Of how many places, drawn at random and changed, the reference's answer changed with."""

    samples: int
    mattered: int


class Roofline(Record, frozen=True):
    """Where the submission stands between the least that a call takes on this GPU and what it took.

    `read_bytes` are those of inputs and weights, each once, `written_bytes` those of outputs, `flop` the operations of
    matrix products, convolutions and attention. `input_flips` and `state_flips` say how much of inputs and weights
    matters, by samples; None where that was not sampled, and all of it is counted. `needed_read_bytes` is what is left.

    `floor_ms` is the time to move what is needed at this GPU's measured bandwidth, less what its L2 cache may keep of
    the outputs. `impossible_ms` is the part of it that is certain: weights are left out, which may have been worked
    into something smaller before the call. A submission that is faster than that by more than the clock's error is
    rejected. `target_ms` is the time of the operations at the measured peak of the problem's own precision, or the
    floor where that is longer; one may beat it. `of_floor`, `bytes_per_s` and `flop_per_s` are what the submission
    reached; None where its time is none.
    """

    read_bytes: int
    written_bytes: int
    flop: int
    input_flips: Flips | None
    state_flips: Flips | None
    needed_read_bytes: int
    bandwidth_bytes_per_s: float
    l2_bytes: int
    peak_flop_per_s: float | None
    floor_ms: float
    impossible_ms: float
    target_ms: float
    of_floor: float | None
    bytes_per_s: float | None
    flop_per_s: float | None
    override_reason: str | None = None


class ShareBasis(StrEnum):
    """How the share of a submission's own kernels is known.

    `built`: the judge looked at what was built, and it holds no kernel. `launches`: kernels of the submission's own
    against library operations, counted on `emulated`. `calls`: likewise calls of its own functions, on `cpu`.
    `profile`: time on the GPU, by a profiler in the runner. `unknown`: none of these.
    """

    BUILT = "built"
    LAUNCHES = "launches"
    CALLS = "calls"
    PROFILE = "profile"
    UNKNOWN = "unknown"


class OwnKernels(Record, frozen=True):
    """How much of the work was done in kernels of the submission's own: a share between `share_low` and `share_high`.

    `own` and `library` are what it comes from: launches, calls, or ms on the GPU. `kernels` are those that the judge
    found in what it had built. All but `built` comes out of the runner, where a submission can forge it upwards.
    """

    basis: ShareBasis
    share_low: float
    share_high: float
    own: float | None
    library: float | None
    kernels: list[str]


class Seeds(Record, frozen=True):
    """The seeds that are not written beside a call. They are drawn fresh for every grade and revealed here.

    `profiles` are those that calls may have beside their problem's own values; a call's seed says which it has.
    """

    weight: Seed
    replayed_from: str | None
    profiles: list[Profile] = []


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
    roofline: Roofline | None = None
    baselines: list[Baseline] = []
    profiling: Profiling | None = None
    own_kernels: OwnKernels | None = None
    required_own_kernel: float | None = None


class ControlResult(Record, frozen=True):
    """What became of one bad submission, as `problems validate` makes them up.

    It `gets_away` where no call of a grade shows it. `passes_on` are the profiles on which it is taken for right,
    `caught_on` is the one that shows it most clearly. `passes_kernelbench`: on the problem's own values it passes
    KernelBench's rule as well.
    """

    control: str
    gets_away: bool
    passes_on: list[Profile]
    caught_on: Profile | None
    advice: str
    passes_kernelbench: bool


class Admission(Record, frozen=True):
    """Whether a problem at one size tells bad submissions from good ones.

    `left_out` has the profiles that are not used, each with the reason; `honest_failures` are honest variants of the
    reference that the problem's own tolerance refuses.
    """

    problem: str
    size: SizeName
    profiles: list[Profile]
    left_out: dict[Profile, str]
    controls: list[ControlResult]
    honest_failures: list[str]

    @property
    def admitted(self) -> bool:
        """Say whether every bad one is caught and every honest one passes."""
        return not self.honest_failures and not any(each.gets_away for each in self.controls)


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
