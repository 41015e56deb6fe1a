"""Results of checked calls, and of the cases of a grade."""

from typing import Annotated, NamedTuple

import msgspec

from evaluator.records.base import Finding, Record, Seed
from evaluator.records.names import Fill, Order, Profile, Status
from evaluator.records.problem import CaseName, Constant


class Mismatch(Record, frozen=True):
    """One element that differs. The values are text because JSON has no NaN and no infinity."""

    index: list[int]
    expected: str
    actual: str


class TensorCheck(Record, frozen=True):
    """Comparison of an output or gradient with the expected value.

    `error_ratio` is the largest error divided by the allowed error (at most 1 passes); `None` if an element is NaN or
    infinite and the expected one is not. `honest_error_ratio` is the same ratio for the plain reference. `tolerance` is
    the allowed error beyond the rounding of an element, as a part of the larger of the element and the root mean square
    of its row; `None` for exact comparisons and under KernelBench's rule. `power` is how many tolerances the nearest
    surely wrong answer is away, in most elements: 0 where rounding decides, `None` where infinite, not measured, or
    not needed because earlier calls proved the output.
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
    tolerance: float | None = None
    power: float | None = None


class Schedule(Record, frozen=True):
    """Order of blocks and threads in the emulator, and contents of fresh memory.

    `seed` is the seed of a shuffled order.
    """

    order: Order
    seed: Seed
    workers: int
    fill: Fill = Fill.NAN


class Check(Record, frozen=True):
    """A call on inputs unknown to the submission, and the result. `index` counts the calls of a size.

    `size` is None on older cards, whose checks all have the card's size.
    On `emulated`, `schedule` is the order of threads, and `launches` the number of kernel launches.
    `benchmark_ok`: the benchmark's rule accepts the outputs, secret rows aside. None for other values than the
    problem's own, for timed calls, and where the benchmark's rule decided.
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
    size: CaseName | None = None
    benchmark_ok: bool | None = None


Weight = Annotated[float, msgspec.Meta(gt=0, le=1e12)]


class CaseResult(Record, frozen=True):
    """Result of one case of a grade of several cases.

    `status` is None for a case left out, with the reason in `message`. `code` and `message` describe a failure. Medians
    are None for a case without times; the speedup and the 95 % interval follow the rules of `Timing`. A `hidden` case
    was drawn for the grade, and is no part of the score.
    """

    name: CaseName
    axes: dict[str, Constant]
    weight: Weight
    status: Status | None
    code: str | None = None
    message: str | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    median_ms: float | None = None
    reference_median_ms: float | None = None
    hidden: bool = False

    @property
    def is_timed(self) -> bool:
        """Whether both sides were timed."""
        return self.median_ms is not None and self.reference_median_ms is not None


class Score(Record, frozen=True):
    """Weighted geometric mean of the speedups of the timed cases, with a 95 % interval (`evaluator/timing/quote.py`).

    The speedup is None if the interval is too wide for a quoted speedup. `weight` is the share of the timed cases in
    the weight of all listed cases of the grade: 1, unless cases were left out.
    """

    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    cases: int
    weight: float


class Quoted(NamedTuple):
    """The speedup of a correct card, with a 95 % interval; None where unknown."""

    speedup: float | None
    low: float | None
    high: float | None
