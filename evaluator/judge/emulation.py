"""What the emulator says of a failed call, as a finding; and which failures at a small size are no verdict at all."""

import re
from collections.abc import Mapping

from evaluator.build.diagnostics import LineMap
from evaluator.emulator.features import hard_coded
from evaluator.findings import Code, finding
from evaluator.records import Constant, Finding

_FAULT = re.compile(r"emulator\[(?P<word>[a-z-]+)\]: (?P<text>.*)", re.DOTALL)
_PLACE = re.compile(r"\((?:(?P<file>[\w.+-]+):|line )(?P<line>\d{1,9})\)")
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

    A submission can write such a message itself. It is a failure either way.
    """
    match = _FAULT.search(message)
    if match is None or match["word"] not in _CODES:
        return None
    text = match["text"].strip().splitlines()[0]
    return finding(_CODES[match["word"]], text[:1000], line=_submission_line(text, texts, submission))


def hard_coded_size(
    source: str, full: Mapping[str, Constant], small: Mapping[str, Constant], why: Finding
) -> Finding | None:
    """Find a number of the full size in code that failed at a small one: then the failure says nothing."""
    found = hard_coded(source, full, small)
    if not found:
        return None
    number, line = found[0]
    return finding(
        Code.HARD_CODED_SIZE, f"{number} is written into the code (line {line}); at this size: {why.message}", line=line
    )


def _submission_line(text: str, texts: Mapping[str, str], submission: str) -> int | None:
    place = _PLACE.search(text)
    if place is None:
        return None
    names = [place["file"]] if place["file"] else ["cuda.cu", "main.cpp"]
    for name in names:
        if name in texts and (line := LineMap(texts[name], submission).submission_line(int(place["line"]))) is not None:
            return line
    return None
