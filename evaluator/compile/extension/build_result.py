"""Result of a build request."""

from evaluator.records import BuildUnit, Finding, Record


class BuildResult(Record, frozen=True):
    """Result of a build request. `library` is None if `unit.ok` is false.

    `kernels` are the kernels defined by the sources, where the library itself has no kernel names (on `emulated`).
    """

    unit: BuildUnit
    library: bytes | None
    finding: Finding | None
    kernels: list[str] | None = None
