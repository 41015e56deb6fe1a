"""Results of the cases of a grade, and the score."""

from typing import Annotated, NamedTuple

import msgspec

from evaluator.records.base import Record
from evaluator.records.names import Status
from evaluator.records.problem import CaseName, Constant

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
    """Weighted geometric mean of the speedups of the timed cases, with a 95 % interval (`evaluator/timing/score.py`).

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
