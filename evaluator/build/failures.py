"""What did not compile, remembered: a submission asks again in every stage, and the same one is handed in again."""

import hashlib
import re

import msgspec
from msgspec.structs import replace

from evaluator.build.built import Built
from evaluator.build.cache import BuildCache
from evaluator.findings import Code
from evaluator.version import __version__

_FINAL = frozenset({Code.COMPILE_FAILED.value, Code.NOT_EMULATED.value})
_NOT_THE_SOURCES = re.compile(
    r"no space left|out of memory|cannot allocate|memory exhausted|killed|resource temporarily unavailable"
    r"|too many open files|input/output error|internal compiler error|segmentation fault|disk quota",
    re.IGNORECASE,
)
"""What a compiler says that was short of something, or broke: another time it may go well."""


class Failures:
    """The failed builds of one submission, and in the cache those that its own lines are to blame for."""

    def __init__(self, cache: BuildCache, submission: str) -> None:
        """Keep them in `cache`, beside the libraries. Messages name lines of `submission`, which is part of the key."""
        self._cache = cache.failures
        self._submission = submission
        self._known: dict[str, Built] = {}

    def get(self, key: str) -> Built | None:
        """Look up a build that failed under this key."""
        if (known := self._known.get(key)) is not None:
            return known
        if (entry := self._cache.get(self._entry(key))) is None:
            return None
        try:
            built = msgspec.json.decode(entry.library, type=Built)
        except msgspec.DecodeError:
            return None
        return replace(built, unit=replace(built.unit, cached=True, wall_s=0.0))

    def note(self, key: str, built: Built) -> Built:
        """Keep a build that failed; one that did not is given back as it is."""
        if built.library is None:
            self._known[key] = built
            if _is_final(built):
                content = msgspec.json.encode(built)
                self._cache.put(self._entry(key), content, log="", wall_s=built.unit.wall_s)
        return built

    def _entry(self, key: str) -> str:
        return hashlib.sha256(msgspec.json.encode([key, self._submission, __version__])).hexdigest()


def _is_final(built: Built) -> bool:
    """Say whether the sources alone are to blame: the compiler named errors, and was short of nothing."""
    if built.finding is None or built.finding.code not in _FINAL or built.finding.details.get("killed"):
        return False
    errors = any(entry.severity == "error" for entry in built.unit.diagnostics)
    return errors and _NOT_THE_SOURCES.search(built.unit.log) is None
