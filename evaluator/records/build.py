"""Results of building the extensions of a submission."""

from evaluator.records.base import Record, Sha256


class Diagnostic(Record, frozen=True):
    """One compiler message, with the submission's own line if known."""

    severity: str
    message: str
    file: str
    line: int
    column: int
    submission_line: int | None
    source_line: str


class BuildUnit(Record, frozen=True):
    """One extension requested by the submission."""

    name: str
    key: Sha256
    ok: bool
    cached: bool
    wall_s: float
    diagnostics: list[Diagnostic]
    log: str


class Build(Record, frozen=True):
    """Import of the submission, and the extensions built by the import."""

    ok: bool
    import_s: float
    units: list[BuildUnit]
