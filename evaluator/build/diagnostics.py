"""Compiler messages, brought back to the submission's own lines. Text in, records out."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from evaluator.records import Diagnostic

_MESSAGE = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<severity>fatal error|error|warning): (?P<text>.*)$"
)
_LINKER = re.compile(
    r"^(?:\S*ld\S*: |collect2: |\S+\.o: |\S+\.cpp:).*?(?P<text>undefined reference to .*|cannot find -l.*)$"
)
_MAX_DIAGNOSTICS = 50


def parse(log: str, files: Mapping[str, str], submission: str) -> list[Diagnostic]:
    """Find the compiler's errors and warnings in `log`, errors first.

    `files` holds the texts of the compiled files by name; a message in one of them is brought to the line of
    `submission` where that text stands, if it stands there.
    """
    found = [entry for line in log.splitlines() if (entry := _parse_line(line, files, submission)) is not None]
    unique = list(dict.fromkeys(_Hashable(entry) for entry in found))
    ordered = sorted((wrapped.entry for wrapped in unique), key=lambda entry: "error" not in entry.severity)
    return ordered[:_MAX_DIAGNOSTICS]


def submission_line(text: str, line: int, submission: str) -> int | None:
    """Find the line of `submission` that became line `line` of a generated file (both count from 1).

    The same text can stand in several places. The distance between the two numberings is constant over a source
    string, so each candidate is judged by how many other lines lie at its distance.
    """
    generated, own = text.splitlines(), submission.splitlines()
    if not 1 <= line <= len(generated) or not generated[line - 1].strip():
        return None
    places: dict[str, list[int]] = {}
    for number, content in enumerate(own, 1):
        places.setdefault(content.rstrip(), []).append(number)
    candidates = places.get(generated[line - 1].rstrip(), [])
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    votes = _distances(generated, places)
    return max(candidates, key=lambda number: votes[number - line])


def _distances(generated: Sequence[str], places: Mapping[str, list[int]]) -> Counter[int]:
    """Count, over all lines, how far the submission's numbering is from the generated file's."""
    votes: Counter[int] = Counter()
    for number, content in enumerate(generated, 1):
        if content.strip():
            votes.update(place - number for place in places.get(content.rstrip(), [])[:64])
    return votes


def _parse_line(line: str, files: Mapping[str, str], submission: str) -> Diagnostic | None:
    if match := _MESSAGE.match(line):
        name = PurePath(match["file"]).name
        number = int(match["line"])
        text = files.get(name)
        lines = text.splitlines() if text is not None else []
        return Diagnostic(
            severity="error" if "error" in match["severity"] else match["severity"],
            message=match["text"][:2000],
            file=name,
            line=number,
            column=int(match["column"] or 0),
            submission_line=None if text is None else submission_line(text, number, submission),
            source_line=lines[number - 1][:500] if number <= len(lines) else "",
        )
    if match := _LINKER.match(line):
        return Diagnostic(
            severity="error",
            message=match["text"][:2000],
            file="",
            line=0,
            column=0,
            submission_line=None,
            source_line="",
        )
    return None


class _Hashable:
    """A diagnostic as a dict key: the same message at the same place is told once."""

    def __init__(self, entry: Diagnostic) -> None:
        self.entry = entry
        self._key = (entry.severity, entry.message, entry.file, entry.line, entry.column)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashable) and self._key == other._key
