"""What came of a build request."""

from evaluator.records import BuildUnit, Finding, Record


class Built(Record, frozen=True):
    """What came of a build request. `library` is None where `unit.ok` is false."""

    unit: BuildUnit
    library: bytes | None
    finding: Finding | None
