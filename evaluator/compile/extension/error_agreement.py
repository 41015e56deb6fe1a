"""Decision whether a compile error of an early build step is the submission's own, making further steps useless."""

import re
from collections.abc import Sequence

from evaluator.protocol.frames import BuildRequest
from evaluator.records import Diagnostic

_PYTORCH = re.compile(
    r"\b(?:torch|at|c10|pybind11|py|nn)\s*::|\b(?:TORCH|AT|C10|PYBIND11)_\w+|\bTensor|\bScalar|\b[Dd]ispatch"
)
_UNKNOWN = re.compile(
    r"undefined|not declared|undeclared|no member|not a member|does not name|not a (?:class|type)"
    r"|incomplete|no suitable|no instance|no matching|no operator|cannot open|No such file|namespace|ambiguous|redefin"
    r"|overload|convert|default argument|linkage|conflicting"
)
_UNDECLARED = re.compile(r"[\u2018'](?P<name>\w+)[\u2019'] was not declared in this scope")
_SPLIT_ONLY = re.compile(r"warpgrade|__cudaPushCallConfiguration")


def agreed(earlier: Sequence[Diagnostic], later: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Return the errors of `later` that `earlier` reports for the same lines, and that no light header can cause.

    Both steps see fewer PyTorch headers than the last step. An unknown name that may belong to PyTorch therefore proves
    nothing. Kernels see all CUDA headers in every step, and nvcc repeats kernel errors in the same words.
    """
    by_line = {(entry.file, entry.line): entry for entry in earlier if _is_own(entry)}
    return [
        entry
        for entry in later
        if _is_own(entry) and (match := by_line.get((entry.file, entry.line))) is not None and _same(entry, match)
    ]


def undeclared(diagnostics: Sequence[Diagnostic], request: BuildRequest) -> list[Diagnostic]:
    """Return the errors about bound functions that no C++ source declares. Such errors are final in any step.

    A search of the sources confirms the compiler's message: only the sources, or files included by them, could contain
    the declaration.
    """
    sources = "\n".join(request.cpp_sources)
    if request.functions is None or re.search(r'#\s*include\s*"', sources):
        return []
    missing = set(request.functions)
    for word in re.finditer(r"\w+", sources):
        missing.discard(word[0])
    return [
        entry
        for entry in diagnostics
        if entry.severity == "error"
        and (match := _UNDECLARED.match(entry.message)) is not None
        and match["name"] in missing
    ]


def _is_own(entry: Diagnostic) -> bool:
    return entry.severity == "error" and entry.submission_line is not None and not _SPLIT_ONLY.search(entry.message)


def _same(entry: Diagnostic, other: Diagnostic) -> bool:
    if _PYTORCH.search(entry.source_line) or _PYTORCH.search(entry.message):
        return False
    return _essence(entry) == _essence(other) or not _UNKNOWN.search(f"{entry.message} {other.message}")


def _essence(entry: Diagnostic) -> str:
    return re.sub("[\u2018\u2019'\"`]", "", entry.message)
