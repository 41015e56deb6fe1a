"""Emulator errors converted to findings, and failures at a small size that allow no verdict."""

import itertools
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from evaluator.emulator.frontend.front_end import CUDA_SUFFIXES
from evaluator.findings import Code, finding
from evaluator.findings.comparing import CHECK_LAUNCHES
from evaluator.protocol.submission_files import place_of
from evaluator.records import Finding
from evaluator.toolchain.diagnostics import LineMap

_MOST_TEXT = 2000
_MOST_FILES = 64
_FAULT = re.compile(r"emulator\[(?P<word>[a-z-]+)\]: (?P<text>.*)", re.DOTALL)
_PLACE = re.compile(r"\((?:(?P<file>[\w./+-]+):|(?P<launch>launched in )line )(?P<line>\d{1,9})\)")
_KERNEL = re.compile(r"kernel (?P<name>\w{1,200})")
_CODES = {
    "illegal-access": Code.ILLEGAL_ACCESS,
    "shared-out-of-bounds": Code.ILLEGAL_ACCESS,
    "divergent-barrier": Code.BARRIER,
    "deadlock": Code.BARRIER,
    "lane-outside-mask": Code.LANE_OUTSIDE_MASK,
    "assert": Code.DEVICE_ASSERT,
    "trap": Code.DEVICE_ASSERT,
    "integer-division": Code.DEVICE_ASSERT,
    "misaligned-address": Code.ILLEGAL_ACCESS,
    "too-much-shared": Code.ILLEGAL_ACCESS,
    "launch-refused": Code.FORWARD_FAILED,
    # Limits of the emulator, not faults of the submission.
    "unsupported": Code.NOT_EMULATED,
    "stack-overflow": Code.NOT_EMULATED,
}


def kernel_fault(message: str, texts: Mapping[str, str], submission: str) -> Finding | None:
    """Return the finding for an emulator error in `message`, with lines of the submission; None for any other message.

    A submission can forge an emulator error, but no error leads to a pass.
    """
    match = _FAULT.search(message)
    if match is None or match["word"] not in _CODES:
        return None
    text = next(iter(match["text"].strip().splitlines()), match["word"])
    kernel = _KERNEL.match(text)
    locations = _Locations(texts, submission, "<<<" if kernel is None else kernel["name"])
    text = _PLACE.sub(locations.location_text, text[:_MOST_TEXT])
    return finding(_CODES[match["word"]], text, line=locations.last)


class _Locations:
    """Converts lines of compiled files to lines of the submission. The last line of a message locates the error."""

    def __init__(self, texts: Mapping[str, str], submission: str, kernel: str) -> None:
        self._kernel = kernel
        self._texts = dict(itertools.islice(texts.items(), _MOST_FILES))
        self._submission = submission
        self._maps: dict[str, LineMap] = {}
        self.last: int | None = None

    def location_text(self, match: re.Match[str]) -> str:
        """Return a location as the submission's line; outside the submission, as the file's name and line."""
        line = self._submission_line(match["file"], int(match["line"]))
        if line is None:
            return match[0] if match["file"] is None else f"({PurePath(match['file']).name}:{match['line']})"
        self.last = line
        return f"({match['launch'] or ''}{place_of(self._submission, line).label})"

    def _submission_line(self, file: str | None, line: int) -> int | None:
        names = self._files_with_launch(line) if file is None else self._files_named(file)
        submission_lines = {self._map(name).submission_line(line) for name in names} - {None}
        return submission_lines.pop() if len(submission_lines) == 1 else None

    def _files_with_launch(self, line: int) -> list[str]:
        """Return the CUDA files with a launch in `line`, else all CUDA files: a launch is reported without a file."""
        names = [name for name in self._texts if PurePath(name).suffix in CUDA_SUFFIXES]
        lines = {name: re.findall(r"\w+|<<<", self._map(name).source_line(line)) for name in names}
        for sign in (self._kernel, "<<<"):
            if matching := [name for name in names if sign in lines[name]]:
                return matching
        return names

    def _files_named(self, file: str) -> list[str]:
        """Return the file with the longest path at the end of the compiler's path: file names may be equal."""
        path = f"/{posixpath.normpath(file)}"
        return sorted((name for name in self._texts if path.endswith(f"/{name}")), key=len)[-1:]

    def _map(self, name: str) -> LineMap:
        """Return the line map of a file, built at the first mention of the file."""
        if name not in self._maps:
            self._maps[name] = LineMap(self._texts[name], self._submission, name)
        return self._maps[name]


def of_refused_launch(wrong_values: Finding, refused: str, texts: Mapping[str, str], submission: str) -> Finding:
    """Return the finding `wrong_values`, explained by the `refused` launch; unchanged for another text."""
    if (launch := kernel_fault(refused, texts, submission)) is None:
        return wrong_values
    message = f"{launch.message}; the error was not checked, and {wrong_values.message}"
    return replace(wrong_values, message=message, line=launch.line, next_step=CHECK_LAUNCHES)


def hard_coded_size(numbers: Sequence[tuple[int, int]], failure: Finding, submission: str) -> Finding | None:
    """Return a no-verdict finding if code that failed at a small size contains `numbers` (value, line) of full size."""
    if not numbers:
        return None
    number, line = numbers[0]
    label = place_of(submission, line).label
    message = f"{number} is written into the code ({label}); at this size: {failure.message}"
    return finding(Code.HARD_CODED_SIZE, message, line=line)
