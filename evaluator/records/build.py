"""What became of the extensions that a submission asked for."""

from evaluator.records.base import Record, Sha256


class Diagnostic(Record, frozen=True):
    """One message of a compiler, at the submission's own line where it could be found there."""

    severity: str
    message: str
    file: str
    line: int
    column: int
    submission_line: int | None
    source_line: str


class BuildUnit(Record, frozen=True):
    """One extension that the submission asked for."""

    name: str
    key: Sha256
    ok: bool
    cached: bool
    wall_s: float
    diagnostics: list[Diagnostic]
    log: str


class Build(Record, frozen=True):
    """Reading the submission in: its import and the extensions built on the way."""

    ok: bool
    import_s: float
    units: list[BuildUnit]
