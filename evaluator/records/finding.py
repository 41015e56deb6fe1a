"""A finding of the judge, with its next step."""

from evaluator.records.base import Record


class Finding(Record, frozen=True):
    """Observation of the judge. `warpgrade explain CODE` explains the `code`."""

    code: str
    message: str
    next_step: str
    line: int | None = None
    details: dict[str, str | int | float | bool | None] = {}
