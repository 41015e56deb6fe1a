"""Times of both sides and of other baselines."""

from enum import StrEnum

from evaluator.records.base import Finding, Record, Seed, Sha256
from evaluator.records.names import L2Rule


class ClockKind(StrEnum):
    """Clock of the judge: `host` times a runner that is stopped between calls, or releases the calls of a window.

    `sealed` uses a GPU's events.
    """

    HOST = "host"
    SEALED = "sealed"


class CallKind(StrEnum):
    """Kind of calls behind a side's samples.

    Both kinds are the duration of one call. A single call is known to 15 us on a GPU, a call in a window more closely.
    """

    WINDOWS = "windows"
    SINGLE = "single calls"


class L2Inputs(Record, frozen=True):
    """Inputs of a timed call in the GPU's L2 cache when the clock starts.

    `cold`: the cache was overwritten after the inputs were written. `warm`: the inputs were then read again, only the
    first `limit_bytes` of each call's if a window's inputs and outputs do not all fit, else all (None).
    """

    rule: L2Rule
    limit_bytes: int | None = None


_TOO_MANY_CALLS = 1 << 31
"""Far above the calls of a window. A forged card may have a number of 400 digits, too large for a float."""


class Windows(Record, frozen=True):
    """Windows of one side: calls one behind the other on one stream, between one start and one end of the clock.

    One call took `window_ms` / (`calls` - 1): `window_ms` is the window less an empty call, times (`calls` - 1) /
    `calls`. Launch gaps are included, the host's time is not. The empty call is one of a runner without a submission;
    `clock_error_ms` has its spread, per call of the shortest window. Cards before version 3 have the window less the
    median single call, which a submission can lengthen. `single_ms` are the single calls, less the overhead. `host_ms`
    is the time of the runner's host to queue one forward, with an end reported by the runner.

    `spot_ms` are times of calls that the judge released one at a time, less the time of an equal call without a
    forward, with inputs that are warm in L2. With `shared_work` the windows disagree with spot checks or single calls,
    and the samples are the single calls. Where spot checks show a clearly smaller speedup than windows, `raised_ms` was
    added to each call, and its error to `clock_error_ms`.

    On the host, the judge releases and times each of the `calls`. `window_ms` is then `calls` - 1 times the median of
    the calls after the first, less the time of an empty one. `clock_error_ms` is the largest error of that difference.
    There are neither spot calls nor `host_ms`; `single_ms` show `shared_work`.
    """

    calls: list[int]
    window_ms: list[float]
    clock_error_ms: float
    single_ms: list[float]
    spot_ms: list[float] = []
    shared_work: bool = False
    host_ms: float | None = None
    raised_ms: float = 0.0

    @property
    def call_ms(self) -> list[float]:
        """Quoted times of one call, in ms: of a call in a window, or of a single call where the windows disagree."""
        return self.single_ms if self.shared_work else [each_ms + self.raised_ms for each_ms in self.measured_ms]

    @property
    def measured_ms(self) -> list[float]:
        """Times of a call in a window, in ms."""
        pairs = zip(self.window_ms, self.calls, strict=False)  # A card from elsewhere may hold anything.
        return [max(each_ms, 0.0) / (count - 1) for each_ms, count in pairs if 1 < count < _TOO_MANY_CALLS]


class Clocks(Record, frozen=True):
    """Clock of the GPU's multiprocessors while a side was timed, as read between calls.

    `throttled` counts the readings with each of NVML's reasons for reduced clocks, idle clocks not included. `start_c`
    is the temperature at the start of the side, for which the judge waited `waited_s`.
    """

    sm_mhz: list[int]
    throttled: dict[str, int] = {}
    start_c: int | None = None
    waited_s: float = 0.0


class Samples(Record, frozen=True):
    """Timed calls of one side, in order. The judge verifies each call's output before the next call starts.

    `first_call_ms` is the time of the first call, not a sample. The runner of `reference_before` answers one
    call before its clock starts, so `reference_after` has the comparable first call. `outliers` counts samples far from
    the rest; `samples_ms` includes them. `host_ms` is the time the host needs to queue a call's work on a GPU,
    `overhead_host_ms` the same for an empty call. With `waits_for_gpu`, forward waits for the GPU, or needs over 30 ms
    to queue its work: a time then includes the host's. A call is void if other work occupied the GPU while the judge
    wrote inputs; `unwatched_ms` bounds the work of a side's own streams that wait for each other. `overhead_ms`
    is the time of an empty call: the minimum on a host, the median on a GPU. `overhead_iqr_ms` is the spread of empty
    calls (on a host at least from minimum to median). `seeds` has the seeds of all calls, including void ones and the
    `other_calls` with other values than the problem's own. Samples come only from calls with the problem's own values.
    With `windows`, a sample is the time of one call in a window (`Windows.call_ms`), not of a single call.
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
    windows: Windows | None = None
    waits_for_gpu: bool = False
    clocks: Clocks | None = None

    @property
    def kind(self) -> CallKind:
        """Kind of the timed calls."""
        in_windows = self.windows is not None and not self.windows.shared_work
        return CallKind.WINDOWS if in_windows else CallKind.SINGLE

    @property
    def launch_ms(self) -> float | None:
        """Time of the host to queue one forward: in windows, or beyond an empty call. None if unknown."""
        if self.windows is not None and self.windows.host_ms is not None:
            return self.windows.host_ms
        if self.host_ms is None or self.overhead_host_ms is None:
            return None
        return max(self.host_ms - self.overhead_host_ms, 0.0)

    @property
    def is_host_bound(self) -> bool:
        """Whether calls one behind the other wait for the host rather than for the GPU."""
        return self.waits_for_gpu or (self.launch_ms is not None and self.launch_ms > self.median_ms)


class Timing(Record, frozen=True):
    """Times of the reference, the submission, and the reference again, by the judge's clock.

    Samples exclude their side's `overhead_ms`, the time of an empty call in a runner without a submission.
    `resolution_ms` is the largest error of a time, in either direction. Sides with windows have a smaller one.

    `*_low*` and `*_high*` are the ends of 95 % intervals, which include the clock's resolution, and on a GPU the
    spread between processes of one program. An end of the speedup's interval is None if unbounded. The speedup is None
    if its interval is wider than 15 %, or 20 % with windows on both sides on a GPU. `significant`: the interval
    excludes 1 and has two ends. Older cards have None in the intervals' fields.

    Several submissions of a problem share the reference's halves. `reference_age_s` is the age of the first half when
    the submission had been timed. `drift_probe_ms` is the time of a call of the reference just then; None if the second
    half itself was measured then, for the first submission.
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
    reference_age_s: float | None = None
    drift_probe_ms: float | None = None

    @property
    def reference_kind(self) -> CallKind:
        """Kind of the reference's calls: windows if both halves have windows."""
        kinds = {self.reference_before.kind, self.reference_after.kind}
        return CallKind.WINDOWS if kinds == {CallKind.WINDOWS} else CallKind.SINGLE

    @property
    def mixes_kinds(self) -> bool:
        """Whether the speedup compares windows of one side with single calls of the other."""
        return self.reference_kind is not self.submission.kind

    @property
    def is_host_bound(self) -> bool:
        """Whether calls of either side, one behind the other, wait for the host rather than for the GPU."""
        return any(each.is_host_bound for each in (self.reference_before, self.submission, self.reference_after))

    @property
    def reference_launch_ms(self) -> float | None:
        """Larger time of the host to queue a forward of the reference, of both halves; None if unknown."""
        known_ms = [each.launch_ms for each in (self.reference_before, self.reference_after)]
        return max((each_ms for each_ms in known_ms if each_ms is not None), default=None)


class BaselineKind(StrEnum):
    """Program that a submission's time is compared with, beside the reference of every grade.

    `compile-max-autotune` is torch.compile without CUDA graphs, whose outputs a later call overwrites.
    """

    EAGER = "eager"
    COMPILE = "compile"
    COMPILE_MAX_AUTOTUNE = "compile-max-autotune"
    SUBMISSION = "submission"

    @property
    def label(self) -> str:
        """Name for a reader."""
        match self:
            case BaselineKind.EAGER:
                return "eager"
            case BaselineKind.COMPILE:
                return "torch.compile"
            case BaselineKind.COMPILE_MAX_AUTOTUNE:
                return "torch.compile, max-autotune"
            case BaselineKind.SUBMISSION:
                return "another submission"


class Tf32(StrEnum):
    """Rounding of fp32 operands to TF32 in a GPU's products: never, PyTorch's default, or always.

    PyTorch's default permits TF32 in convolutions, not in matrix products.
    """

    OFF = "off"
    DEFAULT = "default"
    ON = "on"


class Baseline(Record, frozen=True):
    """Another program for the same problem, timed by the same clock in its own runner, with every output verified.

    `tf32` is None on a device without TF32. `name` and `sha256` identify another submission. `measured_at` is the time
    of the measurement. `kept`: the baseline comes from the cache, measured for another grade beside a reference that
    took `reference_median_ms`. The speedup is the submission's over this baseline; None if its interval is wider than
    15 % (20 % with windows on both sides), or without `samples`, and then `finding` is the reason.
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
