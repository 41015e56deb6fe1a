"""Manifest of a run. The module imports records only, so that printing their schema is fast."""

from evaluator.grade_options import Terms
from evaluator.records import Record

RUN_VERSION = 1


class RunManifest(Record, frozen=True, kw_only=True):
    """Terms, problems and submissions of a run, equal for every session on the same folder."""

    run_version: int = RUN_VERSION
    terms: Terms
    problems: str | None
    submissions: str
    started_at: str
    warpgrade: str
    python: str
    torch: str
    host: str
