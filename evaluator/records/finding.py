"""Something that was found, with its next step."""

from evaluator.records.base import Record


class Finding(Record, frozen=True):
    """Something the judge noticed. `code` is explained by `warpgrade explain CODE`."""

    code: str
    message: str
    next_step: str
    line: int | None = None
    details: dict[str, str | int | float | bool | None] = {}
