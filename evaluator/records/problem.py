"""A problem, and what its author says of it."""

from evaluator.records.base import Record, Sha256
from evaluator.records.names import Layout, Mode, Precision, Profile, SizeName, WeightsRule


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
    are those that inputs may have in memory. `weights` says whether calls have weights of their own.
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
    weights: WeightsRule = WeightsRule.CHANGING
