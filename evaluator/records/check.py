"""One verified call."""

from evaluator.records.base import Record, Seed
from evaluator.records.finding import Finding
from evaluator.records.names import Fill, Order, Profile


class Mismatch(Record, frozen=True):
    """One element that differs. The values are text, because they may be NaN or infinite."""

    index: list[int]
    expected: str
    actual: str


class TensorCheck(Record, frozen=True):
    """How one output (or gradient) compares with the expected one.

    `error_ratio` is the largest error as a multiple of what is allowed (at most 1 passes); `None` where an element
    was NaN or infinite and should not have been. `honest_error_ratio` is the same for the plain reference.
    `tolerance` is what was allowed, as a part of the root mean square of an element's row; `None` where values must be
    equal, and under KernelBench's rule.
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


class Schedule(Record, frozen=True):
    """In which order the emulator ran blocks and threads, and what fresh memory held.

    `seed` is that of a shuffled order.
    """

    order: Order
    seed: Seed
    workers: int
    fill: Fill = Fill.NAN


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
