"""What came of a build request."""

from evaluator.records import BuildUnit, Finding, Record


class Built(Record, frozen=True):
    """What came of a build request. `library` is None where `unit.ok` is false.

    `kernels` are those that its sources define, where the library does not tell (on `emulated`).
    """

    unit: BuildUnit
    library: bytes | None
    finding: Finding | None
    kernels: list[str] | None = None
