"""Cache of failed builds: a submission requests the same build in every stage, and users resubmit the same file."""

import hashlib
import re

import msgspec
from msgspec.structs import replace

from evaluator.cache.build_cache import BuildCache
from evaluator.findings import Code
from evaluator.records import BuildUnit, Finding, Record
from evaluator.version import __version__


class BuildResult(Record, frozen=True):
    """Result of a build request. `library` is None if `unit.ok` is false.

    `kernels` are the kernels defined by the sources, where the library itself has no kernel names (on `emulated`).
    """

    unit: BuildUnit
    library: bytes | None
    finding: Finding | None
    kernels: list[str] | None = None


_FINAL = frozenset({Code.COMPILE_FAILED.value, Code.NOT_EMULATED.value})
_NOT_THE_SOURCES = re.compile(
    r"no space left|out of memory|cannot allocate|memory exhausted|killed|resource temporarily unavailable"
    r"|too many open files|input/output error|internal compiler error|segmentation fault|disk quota",
    re.IGNORECASE,
)
"""Messages of a compiler that lacked resources or crashed. A retry may succeed."""


class FailedBuilds:
    """Failed builds of one submission. The persistent cache holds only failures caused by the submission itself."""

    def __init__(self, cache: BuildCache, submission: str) -> None:
        """Store failures in `cache`, next to the libraries. Keys include `submission`, whose lines messages name."""
        self._cache = cache.failures
        self._submission = submission
        self._failures: dict[str, BuildResult] = {}

    def get(self, key: str) -> BuildResult | None:
        """Return the failed build with the given key."""
        if (remembered := self._failures.get(key)) is not None:
            return remembered
        if (entry := self._cache.get(self._entry(key))) is None:
            return None
        try:
            built = msgspec.json.decode(entry.library, type=BuildResult)
        except msgspec.DecodeError:
            return None
        return replace(built, unit=replace(built.unit, cached=True, wall_s=0.0))

    def note(self, key: str, built: BuildResult) -> BuildResult:
        """Store a failed build; return any build unchanged."""
        if built.library is None:
            self._failures[key] = built
            if _is_final(built):
                content = msgspec.json.encode(built)
                self._cache.put(self._entry(key), content, log="", wall_s=built.unit.wall_s)
        return built

    def _entry(self, key: str) -> str:
        return hashlib.sha256(msgspec.json.encode([key, self._submission, __version__])).hexdigest()


def _is_final(built: BuildResult) -> bool:
    """Return whether only the sources caused the failure: the compiler reported errors and lacked no resource."""
    if built.finding is None or built.finding.code not in _FINAL or built.finding.details.get("killed"):
        return False
    errors = any(entry.severity == "error" for entry in built.unit.diagnostics)
    return errors and _NOT_THE_SOURCES.search(built.unit.log) is None
