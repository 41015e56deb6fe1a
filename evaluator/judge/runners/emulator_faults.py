"""What the emulator says of a failed call, as a finding; and which failures at a small size are no verdict at all."""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from evaluator.emulator.frontend.front_end import CUDA_SUFFIXES
from evaluator.findings import Code, finding
from evaluator.records import Finding
from evaluator.toolchain.diagnostics import LineMap

_MOST_TEXT = 1000
_MOST_FILES = 64
_FAULT = re.compile(r"emulator\[(?P<word>[a-z-]+)\]: (?P<text>.*)", re.DOTALL)
_PLACE = re.compile(r"\((?:(?P<file>[\w.+-]+):|(?P<launch>launched in )line )(?P<line>\d{1,9})\)")
_NO_TRITON = re.compile(r"No module named 'triton(?:\.[\w.]+)?'")
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
    # The emulator's own limits, not the submission's faults.
    "unsupported": Code.NOT_EMULATED,
    "stack-overflow": Code.NOT_EMULATED,
}


def kernel_fault(message: str, texts: Mapping[str, str], submission: str) -> Finding | None:
    """Read the emulator's error, if `message` is one; its line is brought to the submission's own.

    A Triton that is not installed is one too. A submission can write such a message itself: it is no pass either way.
    """
    if _NO_TRITON.fullmatch(message):
        advice = "Triton is not installed; after `pip install triton`, Triton's own interpreter runs the kernels"
        return finding(Code.NOT_EMULATED, advice, construct="triton")
    match = _FAULT.search(message)
    if match is None or match["word"] not in _CODES:
        return None
    text = next(iter(match["text"].strip().splitlines()), match["word"])
    places = _Places(texts, submission)
    text = _PLACE.sub(places.told, text[:_MOST_TEXT])
    return finding(_CODES[match["word"]], text, line=places.last)


class _Places:
    """Lines of the compiled files, told as lines of the submission. The last one in a message is the error's own."""

    def __init__(self, texts: Mapping[str, str], submission: str) -> None:
        self._texts = dict(itertools.islice(texts.items(), _MOST_FILES))
        self._submission = submission
        self._maps: dict[str, LineMap] = {}
        self.last: int | None = None

    def told(self, place: re.Match[str]) -> str:
        """Rewrite one place of a message; one that does not stand in the submission is left as it is."""
        line = self._submission_line(place["file"], int(place["line"]))
        if line is None:
            return place[0]
        self.last = line
        return f"({place['launch'] or ''}line {line})"

    def _submission_line(self, file: str | None, line: int) -> int | None:
        # A launch is known by its line alone; only CUDA's own files have any.
        names = [file] if file else [name for name in self._texts if PurePath(name).suffix in CUDA_SUFFIXES]
        found = {self._map(name).submission_line(line) for name in names if name in self._texts} - {None}
        return found.pop() if len(found) == 1 else None

    def _map(self, name: str) -> LineMap:
        """Compare a file with the submission, when a message first names it."""
        if name not in self._maps:
            self._maps[name] = LineMap(self._texts[name], self._submission)
        return self._maps[name]


def hard_coded_size(numbers: Sequence[tuple[int, int]], why: Finding) -> Finding | None:
    """Give no verdict on code that failed at a small size and has `numbers` of the full one, each with its line."""
    if not numbers:
        return None
    number, line = numbers[0]
    return finding(
        Code.HARD_CODED_SIZE, f"{number} is written into the code (line {line}); at this size: {why.message}", line=line
    )
