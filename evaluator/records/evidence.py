"""Evidence in a card beside the checks and times: machine, builds, machine code, own kernels, roofline, profile."""

from enum import StrEnum

from evaluator.records.base import Finding, Record, Sha256
from evaluator.records.names import DeviceKind


class Environment(Record, frozen=True):
    """Software and machine, as seen by the judge."""

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
    """A GPU, with clocks and temperatures before and after the grade."""

    uuid: str
    capability: str
    memory_bytes: int
    driver: str
    sm_mhz: list[int]
    memory_mhz: list[int]
    temperature_c: list[int]


class DeviceFacts(Record, frozen=True):
    """Device of the grade."""

    kind: DeviceKind
    name: str
    gpu: GpuFacts | None = None


class SandboxFacts(Record, frozen=True):
    """Active and missing layers of the sandbox, and the limits.

    `memory_bytes` is the limit of each process, `held_bytes` the limit of all processes together (0 on older cards).
    """

    mode: str
    layers: list[str]
    missing: list[str]
    memory_bytes: int
    processes: int
    file_bytes: int
    private_folder_bytes: int
    held_bytes: int = 0


class Diagnostic(Record, frozen=True):
    """One compiler message, with the submission's own line if known."""

    severity: str
    message: str
    file: str
    line: int
    column: int
    submission_line: int | None
    source_line: str


class BuildUnit(Record, frozen=True):
    """One extension requested by the submission."""

    name: str
    key: Sha256
    ok: bool
    cached: bool
    wall_s: float
    diagnostics: list[Diagnostic]
    log: str


class Build(Record, frozen=True):
    """Import of the submission, and the extensions built by the import."""

    ok: bool
    import_s: float
    units: list[BuildUnit]

    @property
    def failed(self) -> list[BuildUnit]:
        """The extensions that were not built."""
        return [unit for unit in self.units if not unit.ok]

    @property
    def errors(self) -> list[Diagnostic]:
        """The compiler's errors, without warnings, of the failed extensions."""
        return [message for unit in self.failed for message in unit.diagnostics if "error" in message.severity]


_SHOWN_KERNELS, _SHOWN_INSTRUCTIONS, _SHOWN_NAME = 2, 3, 60


class NumberFormat(StrEnum):
    """Format of the numbers that an instruction multiplies, adds or writes.

    `integer` includes binary numbers. `unstated`: TF32, bf16 or fp16, which a descriptor in a register selects.
    """

    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    FP4 = "fp4"
    INTEGER = "integer"
    UNSTATED = "unstated"


class InstructionKind(StrEnum):
    """`tensor_core`: matrix products. `arithmetic`: sums, products, functions. `conversion`: rounding to the format."""

    TENSOR_CORE = "tensor_core"
    ARITHMETIC = "arithmetic"
    CONVERSION = "conversion"


class InstructionCount(Record, frozen=True):
    """An instruction by the disassembler's name, and the number of its occurrences in the text of a kernel."""

    name: str
    kind: InstructionKind
    format: NumberFormat
    count: int


class KernelInstructions(Record, frozen=True):
    """Instructions of reduced precision in a kernel, or in a device function that was not inlined.

    Instances of a template are counted together. `other_dtype`: an instance for half-precision types, and the library
    also has an instance without such types and instructions, as PyTorch's dispatch macros make them.
    """

    name: str
    instructions: list[InstructionCount]
    other_dtype: bool = False

    @property
    def text(self) -> str:
        """The most frequent instructions with their numbers, and the name of the kernel."""
        shown = ", ".join(f"{each.name} ({each.count})" for each in self.instructions[:_SHOWN_INSTRUCTIONS])
        return f"{shown} in {self.name[:_SHOWN_NAME]}{' (for another dtype)' if self.other_dtype else ''}"


class MachineCode(Record, frozen=True):
    """Machine code of all libraries that the judge built for a submission on `cuda`.

    `kernels` counts the kernels that were looked at. `reduced` lists those with instructions of reduced precision,
    tensor cores first; `other_reduced` counts the rest. `library_kernels` are names of kernels of other libraries that
    stand for reduced precision: names in a profile that the submission's process reported, not instructions.
    `not_looked_at` is the reason if the machine code of a library is unknown.
    """

    kernels: int = 0
    reduced: list[KernelInstructions] = []
    other_reduced: int = 0
    library_kernels: list[str] = []
    not_looked_at: str | None = None

    @property
    def text(self) -> str:
        """One line for screens and pages; empty for a submission without kernels."""
        parts = [kernel.text for kernel in self.reduced[:_SHOWN_KERNELS]]
        if (left := len(self.reduced) - _SHOWN_KERNELS + self.other_reduced) > 0:
            parts.append(f"{left} more")
        if self.kernels and not parts:
            parts.append("no tensor-core or half-precision instruction")
        if self.library_kernels:
            parts.append(f"by name: {self.library_kernels[0][:_SHOWN_NAME]}")
        if self.not_looked_at is not None:
            parts.append(f"not looked at: {self.not_looked_at}")
        return "; ".join(parts)


class KernelUse(Record, frozen=True):
    """A kernel of one call by the profiler's name, with the number of launches and their total time.

    On `cpu` an entry is a PyTorch operation. `own`: a kernel built from the submission has this name; None on `cpu`.
    """

    name: str
    launches: int
    time_us: float
    own: bool | None


class KernelResources(Record, frozen=True):
    """Resources of a kernel as reported by ptxas: registers, stack and spills per thread, shared memory per block.

    `claimed`: reported by the submission's own process (Triton), where `stack_bytes` holds stack and spills together.
    """

    name: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    claimed: bool = False


class KernelCounters(Record, frozen=True):
    """Hardware counters of a kernel over all its launches: sums, and means weighted by time.

    `dram_bytes` is the traffic of the GPU's memory, `dram_bytes_per_s` its mean rate. `bandwidth_percent` is relative
    to the memory's peak (dram__throughput). `occupancy_percent` is the share of active warps among those that fit into
    a multiprocessor (sm__warps_active). A field is None if this GPU lacks the counter. `own` as in `KernelUse`.
    """

    name: str
    launches: int
    time_us: float
    dram_bytes: float | None
    dram_bytes_per_s: float | None
    bandwidth_percent: float | None
    occupancy_percent: float | None
    own: bool


class Counters(Record, frozen=True):
    """Nsight Compute's counters for one call, made by a separate program in a runner's sandbox.

    The submission's process takes part in the measurement, so the counters decide nothing. `kernels` are the longest
    ones, `other_kernels` counts the rest. `cut`: the call has too many launches, and only the first are measured.
    `finding` is the reason for missing counters.
    """

    kernels: list[KernelCounters]
    other_kernels: int
    launches: int
    cut: bool
    finding: Finding | None = None


class Profiling(Record, frozen=True):
    """Profile of one additional call in its own runner, neither timed nor compared.

    The submission's process reports the profile, so it decides nothing unless the grade requires own kernels. `kernels`
    are the longest ones, `other_kernels` counts the rest; `own_share` is the share of time in own kernels. `resources`
    come from the compiler, or are `claimed`. `finding` is the reason for a missing profile. `counters` are present on
    request.
    """

    kernels: list[KernelUse]
    other_kernels: int
    launches: int
    time_us: float
    own_share: float | None
    resources: list[KernelResources]
    finding: Finding | None = None
    counters: Counters | None = None


class Flips(Record, frozen=True):
    """Sampled relevance of inputs: of `samples` changed elements, `mattered` ones changed the reference's output."""

    samples: int
    mattered: int


class Roofline(Record, frozen=True):
    """Time of the submission relative to the least time of a call on this GPU.

    `read_bytes` counts inputs and weights once each, `written_bytes` the outputs, `flop` the operations of matrix
    products, convolutions and attention. `input_flips` and `state_flips` are the sampled relevance of inputs and
    weights; None without samples, and then all bytes count. `needed_read_bytes` is the relevant part of `read_bytes`.

    `floor_ms` is the time to move the needed bytes at this GPU's measured bandwidth, less the outputs and the warm
    inputs that its L2 cache can keep. `impossible_ms` is the certain part of the floor, without weights, which a
    submission may have packed before the call. A submission faster than `impossible_ms` by more than the clock's error
    is rejected. `target_ms` is the larger of the floor and the time of the operations at the measured peak of the
    problem's precision; a submission may beat the target. `of_floor`, `bytes_per_s` and `flop_per_s` are the
    submission's results; None without a measurable time.
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
    """Source of the share of own kernels.

    `built`: no built library contains a kernel. `launches`: launches of own kernels against library operations, counted
    on `emulated`. `calls`: calls of own functions against library operations, counted on `cpu`. `profile`: GPU time,
    from a profiler in the runner. `work`: PyTorch's operations did the rest of the reference's work, in FLOP and bytes.
    `left_out`: without own kernels the answer was still correct. `refuted`: the count shows no PyTorch operation, but
    without PyTorch operations the answer was wrong. `unknown`: no source.
    """

    BUILT = "built"
    LAUNCHES = "launches"
    CALLS = "calls"
    PROFILE = "profile"
    WORK = "work"
    LEFT_OUT = "left_out"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


class OwnKernels(Record, frozen=True):
    """Share of the work in the submission's own kernels: between `share_low` and `share_high`.

    `own` and `library` are the compared amounts: launches, calls, or ms on the GPU. `kernels` are the kernels in the
    built libraries, and the Triton kernels of the text. The runner reports `launches`, `calls` and `profile`, so a
    submission can forge them upwards.
    `right_without_kernels` and `right_without_library` are the judge's verdicts on a call without one of the two sides;
    None if not tried, or not possible.
    """

    basis: ShareBasis
    share_low: float
    share_high: float
    own: float | None
    library: float | None
    kernels: list[str]
    right_without_kernels: bool | None = None
    right_without_library: bool | None = None
