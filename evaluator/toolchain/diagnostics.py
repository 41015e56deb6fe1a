"""Parser for compiler messages, with mapping to the submission's lines."""

import functools
import posixpath
import re
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from evaluator.protocol.submission_files import parts
from evaluator.records import Diagnostic

_MESSAGE = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d{1,9}):(?:(?P<column>\d{1,9}):)? "
    r"(?P<severity>fatal error|error|warning): (?P<text>.*)$"
)
_NVCC_MESSAGE = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d{1,9})\): "
    r"(?P<severity>error|warning|catastrophic error)(?: #\d+(?:-D)?)?: (?P<text>.*)$"
)
_CUDA_TOOL = re.compile(
    r"^(?P<tool>ptxas|nvlink|nvcc|fatbinary|cudafe\+\+)(?: [^,\n]{1,300}, line \d{1,9};)? "
    r"(?P<severity>error|fatal|warning) *: (?P<text>.*)$"
)
_LINKER = re.compile(r"^\S.*?: (?P<text>(?:undefined reference to|multiple definition of|cannot find -l).*)$")
_NO_RETURN = re.compile(r"\[-Wreturn-type\]|missing return statement at end of non-void function")
_MAX_DIAGNOSTICS = 50
_MAX_LINE = 4000
_MAX_PLACES = 8
"""Lines with more occurrences (such as a closing brace) carry no position information."""
_MOST_LINES = 1 << 16
"""Lines beyond the limit are not mapped. A 1 MiB text with 16 characters per line reaches the limit."""
_MOST_CANDIDATES = 256


def parse(log: str, files: Mapping[str, str], submission: str) -> list[Diagnostic]:
    """Parse the compiler's errors and warnings in `log`, errors first.

    `files` maps names of compiled files to their texts. A message in such a file is mapped to the line of `submission`
    with the same text, if any.
    """
    entries = [entry for line in log.split("\n") if (entry := _parse_line(line[:_MAX_LINE])) is not None]
    ordered = sorted(dict.fromkeys(entries), key=lambda entry: "error" not in entry.severity)
    maps: dict[str, LineMap] = {}
    return [_located(entry, files, submission, maps) for entry in ordered[:_MAX_DIAGNOSTICS]]


def missing_return(log: str, files: Mapping[str, str], submission: str) -> Diagnostic | None:
    """Return the first warning of g++ or nvcc in `log` about a function that may end without its value."""
    warnings = parse(log, files, submission) if _NO_RETURN.search(log) else []
    return next((entry for entry in warnings if entry.submission_line and _NO_RETURN.search(entry.message)), None)


def _plain_path(path: str, files: Mapping[str, str]) -> str:
    """Return a compiler's spelling of a path as the known path that it means, else its last part.

    >>> _plain_path("./csrc/../tile.cuh", {"tile.cuh": ""}), _plain_path("/usr/include/math.h", {"tile.cuh": ""})
    ('tile.cuh', 'math.h')
    """
    plain = posixpath.normpath(path)
    return plain if plain in files else posixpath.basename(path)


class LineMap:
    """Mapping from lines of a generated file to lines of a submission. Both count from 1, as compilers do.

    A text line can occur several times in the submission. Within one source string, the difference between the two line
    numbers is constant. The candidate whose difference is shared by most other lines wins. Lines of a submission's file
    stay together.
    """

    def __init__(self, text: str, submission: str, name: str = "") -> None:
        """Index all lines once. Only newlines separate lines: compilers ignore form feeds and U+2028.

        `name` is the path of a file; of several files, the same path with the same text is the same file.
        """
        self.lines = text.split("\n", _MOST_LINES)[:_MOST_LINES]
        same = (file.lines_before for file in parts(submission) if (file.path, file.text) == (name, text))
        self._lines_before = next(same, None)
        self._submission = submission
        self._lines_of_text = _lines_of_text(submission)
        self._votes: Counter[int] = Counter()
        for number, content in enumerate(self.lines, 1):
            numbers = self._lines_of_text.get(content.rstrip(), []) if content.strip() else []
            if len(numbers) <= _MAX_PLACES:
                self._votes.update(line - number for line in numbers)

    def submission_line(self, line: int) -> int | None:
        """Return the submission's line for `line`; None if the submission lacks the line's text.

        Python may have turned an escape into a line break: a line after a mapped line may be the beginning of the
        submission's next line.
        """
        if self._lines_before is not None:
            return line + self._lines_before if 1 <= line <= len(self.lines) else None
        content = self.source_line(line).rstrip()
        candidates = self._lines_of_text.get(content, []) if content else []
        if content and not candidates and (before := self._exact(line - 1)) is not None:
            following = self._submission.split("\n", before + 1)[before:][:1]
            return before + 1 if following and following[0].startswith(content) else None
        return self._exact(line)

    def _exact(self, line: int) -> int | None:
        content = self.source_line(line).rstrip()
        candidates = self._lines_of_text.get(content, []) if content else []
        return max(candidates[:_MOST_CANDIDATES], key=lambda number: self._votes[number - line], default=None)

    def source_line(self, line: int) -> str:
        """Return a line of the generated file; empty beyond the last line."""
        return self.lines[line - 1] if 1 <= line <= len(self.lines) else ""


@functools.lru_cache(maxsize=1)
def _lines_of_text(submission: str) -> Mapping[str, list[int]]:
    """Map each text line of a submission to line numbers. Cached: all files of a build use the same submission."""
    numbers: dict[str, list[int]] = {}
    for number, content in enumerate(submission.split("\n", _MOST_LINES)[:_MOST_LINES], 1):
        numbers.setdefault(content.rstrip(), []).append(number)
    return numbers


def _located(entry: Diagnostic, files: Mapping[str, str], submission: str, maps: dict[str, LineMap]) -> Diagnostic:
    entry = replace(entry, file=_plain_path(entry.file, files))
    if entry.file not in files:
        return entry
    if entry.file not in maps:
        maps[entry.file] = LineMap(files[entry.file], submission, entry.file)
    lines = maps[entry.file]
    return replace(
        entry, submission_line=lines.submission_line(entry.line), source_line=lines.source_line(entry.line)[:500]
    )


def _parse_line(line: str) -> Diagnostic | None:
    if match := _MESSAGE.match(line) or _NVCC_MESSAGE.match(line):
        return Diagnostic(
            severity="error" if "error" in match["severity"] else match["severity"],
            message=match["text"][:2000],
            file=match["file"],
            line=int(match["line"]),
            column=int(match.groupdict().get("column") or 0),
            submission_line=None,
            source_line="",
        )
    if match := _CUDA_TOOL.match(line):
        return _placeless("warning" if match["severity"] == "warning" else "error", f"{match['tool']}: {match['text']}")
    if match := _LINKER.match(line):
        return _placeless("error", match["text"])
    return None


def _placeless(severity: Literal["error", "warning"], message: str) -> Diagnostic:
    """Create a diagnostic for a tool without source positions."""
    return Diagnostic(
        severity=severity, message=message[:2000], file="", line=0, column=0, submission_line=None, source_line=""
    )
