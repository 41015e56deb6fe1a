"""Manifest of a run. The module imports records only, so that printing their schema is fast."""

from evaluator.grade_options import Terms
from evaluator.records import Record

RUN_VERSION = 1


class RunManifest(Record, frozen=True, kw_only=True):
    """Terms of a run, problems and submissions. Every session on the same folder has the same terms, problems and submissions."""

    run_version: int = RUN_VERSION
    terms: Terms
    problems: str | None
    submissions: str
    started_at: str
    warpgrade: str
    python: str
    torch: str
    host: str
