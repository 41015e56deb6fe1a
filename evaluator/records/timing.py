"""The times of both sides, and of other baselines."""

from enum import StrEnum

from evaluator.records.base import Record, Seed, Sha256
from evaluator.records.finding import Finding


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
    on the GPU while its inputs were written; `unwatched_ms` is how long that may have been work of this side, whose
    streams waited for each other. `overhead_ms` is the least that an empty call took on a host, the median on a GPU,
    and `overhead_iqr_ms` how far such calls spread (on a host at least from the least to the median). `seeds` has those
    of all calls: of void ones too, and of the `other_calls` whose inputs had other values than the problem's own. The
    samples are of calls as given alone.
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
    unwatched_ms: float = 0.0


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
