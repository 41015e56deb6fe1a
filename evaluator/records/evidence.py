"""Where the time goes, what bounds it, and whose kernels do the work."""

from enum import StrEnum

from evaluator.records.base import Record
from evaluator.records.finding import Finding


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


class KernelCounters(Record, frozen=True):
    """What the hardware counted of a kernel, all its launches together: sums, and means weighted by time.

    `dram_bytes` went to and from the GPU's memory, at `dram_bytes_per_s` on average. `bandwidth_percent` is of what
    that memory can do at most (dram__throughput), `occupancy_percent` the warps that were active of those that fit into
    a multiprocessor (sm__warps_active). None where this GPU does not count it. `own` as in `KernelUse`.
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
    """What Nsight Compute says of one call, made in a program of its own behind a runner's walls.

    The submission's own process is part of it, so it decides nothing. `kernels` are those that took longest,
    `other_kernels` counts the rest. Of a call of very many launches only the first are looked at: then it is `cut`.
    `finding` says why there is nothing.
    """

    kernels: list[KernelCounters]
    other_kernels: int
    launches: int
    cut: bool
    finding: Finding | None = None


class Profiling(Record, frozen=True):
    """Where the time of one call goes: one that is neither timed nor compared, in a runner of its own.

    It is what the submission's own process saw, and decides nothing unless a grade asks for own kernels. `kernels` are
    those that took longest, `other_kernels` counts the rest; `own_share` is the part of the time in own kernels.
    `resources` are the compiler's. `finding` says why there is nothing. `counters` are there where they were asked for.
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
    `profile`: time on the GPU, by a profiler in the runner. `left_out`: with its own kernels left out the answer was
    right all the same. `refuted`: by the count no operation of PyTorch's computes, and without them the answer was
    wrong. `unknown`: none of these.
    """

    BUILT = "built"
    LAUNCHES = "launches"
    CALLS = "calls"
    PROFILE = "profile"
    LEFT_OUT = "left_out"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


class OwnKernels(Record, frozen=True):
    """How much of the work was done in kernels of the submission's own: a share between `share_low` and `share_high`.

    `own` and `library` are what it comes from: launches, calls, or ms on the GPU. `kernels` are those that the judge
    found in what it had built. `launches`, `calls` and `profile` come out of the runner, where a submission can forge
    them upwards. `right_without_kernels` and `right_without_library` are what the judge saw of a call in which one side
    was left out; None where that was not tried, or could not be.
    """

    basis: ShareBasis
    share_low: float
    share_high: float
    own: float | None
    library: float | None
    kernels: list[str]
    right_without_kernels: bool | None = None
    right_without_library: bool | None = None
