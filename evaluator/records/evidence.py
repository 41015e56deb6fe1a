"""Evidence beside the verdict: profiles, counters, the roofline and the share of own kernels."""

from enum import StrEnum

from evaluator.records.base import Record
from evaluator.records.finding import Finding


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
