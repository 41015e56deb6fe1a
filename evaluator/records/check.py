"""Record of a verified call."""

from evaluator.records.base import Record, Seed
from evaluator.records.finding import Finding
from evaluator.records.names import Fill, Order, Profile
from evaluator.records.problem import CaseName


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
