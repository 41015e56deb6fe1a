"""Failures of the emulator, of Triton and of other kernel languages, converted to findings.

A kernel is refused by the compiler, unknown to an interpreter, or written for another device or size. The functions on
the stack are reports of the submission's own process. A forged report changes the reason of a failure, and never leads
to a pass.
"""

import itertools
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from evaluator.emulator.frontend.front_end import CUDA_SUFFIXES
from evaluator.findings import Code, finding
from evaluator.findings.comparing import CHECK_LAUNCHES
from evaluator.languages.language import Language, is_importable, uses_triton
from evaluator.languages.registry import failed_at_import, failed_in_compiler, failed_language, install_command
from evaluator.protocol.frames import Raised, RefusedKernel
from evaluator.protocol.submission_files import line_of, place_of
from evaluator.records import DeviceKind, Diagnostic, Fault, Finding, Status
from evaluator.toolchain.diagnostics import LineMap, parse

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
    "shared-race": Code.SHARED_RACE,
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


_MOST_REASON, _MOST_LINES, _MOST_NAME = 2000, 12, 100
_NOT_INTERPRETED = re.compile(r"(?P<what>\w{1,60}) not supported in interpreter mode")
_NO_DRIVER = re.compile(r"\d{1,9} active drivers \(")
_NOT_A_GPU_TENSOR = "cannot be accessed from Triton"
_WITHOUT_BODY = ("NoneType", "`_semantic` argument")
_OF_A_NUMBER = re.compile(r"'(?:int|float)' object has no attribute '(?:to|cast|dtype)'$")
_LIBDEVICE = re.compile(r"\blibdevice\b")


def triton_fault(failed: Raised, device: DeviceKind, source: str) -> Fault | None:
    """Return the fault for a failure of Triton's; None for any other.

    A submission can forge each of them. None leads to a pass.
    """
    match device:
        case DeviceKind.EMULATED if uses_triton(source):
            construct = _not_interpreted(failed, source)
            if construct is not None:
                message = f"Triton's interpreter lacks {construct}"
                return Fault(Status.INCONCLUSIVE, finding(Code.NOT_EMULATED, message, construct=construct))
        case DeviceKind.CPU if uses_triton(source) and (
            _NO_DRIVER.match(failed.message) or _NOT_A_GPU_TENSOR in failed.message
        ):
            message = "the submission launches Triton kernels, and this grade is on cpu"
            return Fault(Status.INCONCLUSIVE, finding(Code.NOT_ON_THIS_DEVICE, message))
        case _:
            pass
    if failed.refused is None:
        return None
    return Fault(Status.BUILD_ERROR, _refusal(failed.refused, source, device))


def likely_cause(signal: str | None, device: DeviceKind, source: str) -> str:
    """Return the likely cause of a runner's death in Triton's interpreter; empty for any other death."""
    if signal != "SIGSEGV" or device is not DeviceKind.EMULATED or not uses_triton(source):
        return ""
    return "; in Triton's interpreter probably a tl.load or tl.store past the end of a tensor, without a mask"


def interpreter_remarks(source: str, device: DeviceKind) -> list[Finding]:
    """Return the remark that Triton's interpreter, not the emulator, ran the kernels; empty without Triton."""
    if device is not DeviceKind.EMULATED or not uses_triton(source) or not is_importable("triton", with_code=False):
        return []
    message = "Triton's interpreter (NumPy) ran the kernels, not the emulator: no races, no out-of-bounds detection"
    return [finding(Code.INTERPRETED, message)]


def _refusal(refused: RefusedKernel, source: str, device: DeviceKind) -> Finding:
    """Return the finding for a refused kernel. The place must exist in `source`; otherwise the finding has none."""
    lines = source.splitlines()
    line = refused.line if 1 <= refused.line <= len(lines) else None
    column = refused.column if line is not None and 1 <= refused.column <= len(lines[line - 1]) + 1 else None
    reason_lines = refused.reason.strip()[:_MOST_REASON].splitlines()[:_MOST_LINES]
    name = refused.kernel[:_MOST_NAME]
    kernel = f"the kernel {name}" if name else "a kernel"
    interpreted = device is DeviceKind.EMULATED
    subject = f"Triton's interpreter refuses {kernel}" if interpreted else f"{kernel} does not compile"
    return finding(Code.KERNEL_REFUSED, f"{subject}: " + "\n".join(reason_lines), line=line, kernel=name, column=column)


def _not_interpreted(failed: Raised, source: str) -> str | None:
    """Return the construct that Triton's interpreter lacks; None for any other failure.

    In the interpreter, a function of libdevice returns None or refuses the call, depending on its import. The variable
    of a loop is a number of Python, and on a GPU a tensor with methods.
    """
    message = failed.message
    if (match := _NOT_INTERPRETED.search(message)) is not None:
        return match["what"]
    if _NO_DRIVER.match(message):
        return "triton.runtime.driver"
    if failed.refused is not None and failed.refused.line and _OF_A_NUMBER.search(message):
        return "methods of tensors for numbers"
    without_body = any(words in message for words in _WITHOUT_BODY)
    return "libdevice" if without_body and _LIBDEVICE.search(source) else None


_NO_FILE = frozenset(("ModuleNotFoundError", "ImportError", "OSError", "FileNotFoundError", "DynamicLibNotFoundError"))
"""Exceptions in the code of an incomplete language: a missing module, shared library or program."""
_ENDS = " \n\0"
"""cuda-python's logs end with the zero of a C string."""
_ARROW_PLACE = re.compile(r"^ {0,8}--> (?P<file>[^\n:]{1,400}):(?P<line>\d{1,7}):(?P<column>\d{1,5})$", re.MULTILINE)
"""Place of an error in CuTe DSL's messages, above an excerpt with a caret; both numbers begin with 1."""
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}m")


def unavailable_language(failed: Raised, device: DeviceKind, line: int | None) -> Fault | None:
    """Return the fault for an incomplete language, or a language not for `device`; None for any other failure."""
    if (language := failed_language(failed.functions)) is None:
        return None
    if device not in language.runs_on:
        message = f"the submission uses {language.title}, and this grade is on {device.value}"
        return Fault(Status.INCONCLUSIVE, finding(Code.NOT_ON_THIS_DEVICE, message, line=line))
    if failed.kind in _NO_FILE or failed_at_import(language, failed.functions):
        reason = _shortened(failed.message)
        message = f"{language.title} lacks a part ({reason}): {install_command(language)}"
        return Fault(Status.INCONCLUSIVE, finding(Code.LANGUAGE_MISSING, message, line=line))
    return None


def refused_by_compiler(failed: Raised, submission: str, line: int | None) -> Fault | None:
    """Return the fault for a kernel refused by the language's compiler; None for any other failure."""
    if failed.refused is not None and failed.refused.text:
        return Fault(Status.BUILD_ERROR, _refused_text(failed.refused, submission))
    language = failed_language(failed.functions)
    if language is None or not failed_in_compiler(language, failed.functions):
        return None
    return Fault(Status.BUILD_ERROR, _refused_call(language, failed, submission, line))


def _refused_call(language: Language, failed: Raised, submission: str, line: int | None) -> Finding:
    """Return the finding for an exception of a compiler, with the compiler's place, or else `line` of the call."""
    reason = _shortened(_COLOURS.sub("", failed.message).strip(_ENDS) or failed.kind)
    message = f"{language.title} does not compile the kernel: {reason}"
    for match in _ARROW_PLACE.finditer(reason):
        if (submission_line := line_of(submission, match["file"], int(match["line"]))) is not None:
            return finding(Code.KERNEL_REFUSED, message, line=submission_line, column=int(match["column"]))
    return finding(Code.KERNEL_REFUSED, message, line=line)


def _refused_text(refused: RefusedKernel, submission: str) -> Finding:
    """Return the finding for NVRTC's first error, with the submission's line of the same text."""
    file = f"{refused.kernel}.cu"
    errors = [error for error in parse(refused.reason, {file: refused.text}, submission) if error.severity == "error"]
    name = refused.kernel[:_MOST_NAME]
    subject = f"the kernel {name} does not compile" if name else "a kernel does not compile"
    if not errors:
        return finding(Code.KERNEL_REFUSED, f"{subject}: {_shortened(refused.reason)}", kernel=name)
    first = errors[0]
    column = _caret(refused.reason, first) if first.submission_line is not None else None
    message = f"{subject}: {first.message}"
    return finding(Code.KERNEL_REFUSED, message, line=first.submission_line, kernel=name, column=column)


def _caret(log: str, error: Diagnostic) -> int | None:
    """Return the column of NVRTC's caret below the source line of `error`, counted from 1; None without a caret."""
    lines = log.split("\n")
    at = next((number for number, line in enumerate(lines) if line.endswith(error.message)), len(lines))
    shown, caret = [*lines[at + 1 : at + 3], "", ""][:2]
    source_line = error.source_line.strip()
    if not source_line or caret.strip() != "^" or (start := shown.find(source_line)) < 0:
        return None
    return caret.index("^") - start + len(error.source_line) - len(error.source_line.lstrip()) + 1


def _shortened(reason: str) -> str:
    return "\n".join(reason[:_MOST_REASON].splitlines()[:_MOST_LINES])
