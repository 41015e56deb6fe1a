"""Failures in the code of a kernel language: not installed, not for the device, or a kernel with compile errors.

The functions on the stack are reports of the submission's own process. A forged report changes the reason of a failure,
and never leads to a pass.
"""

import re

from evaluator.findings import Code, finding
from evaluator.languages.language import Language
from evaluator.languages.registry import failed_at_import, failed_in_compiler, failed_language, install_command
from evaluator.protocol.frames import Failed, RefusedKernel
from evaluator.protocol.submission_files import line_of
from evaluator.records import DeviceKind, Diagnostic, Fault, Finding, Status
from evaluator.toolchain.diagnostics import parse

_MOST_REASON, _MOST_LINES, _MOST_NAME = 2000, 12, 100
_NO_FILE = frozenset(("ModuleNotFoundError", "ImportError", "OSError", "FileNotFoundError", "DynamicLibNotFoundError"))
"""Exceptions in the code of an incomplete language: a missing module, shared library or program."""
_ENDS = " \n\0"
"""cuda-python's logs end with the zero of a C string."""
_PLACE = re.compile(r"^ {0,8}--> (?P<file>[^\n:]{1,400}):(?P<line>\d{1,7}):(?P<column>\d{1,5})$", re.MULTILINE)
"""Place of an error in CuTe DSL's messages, above an excerpt with a caret; both numbers begin with 1."""
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}m")


def unavailable_language(failed: Failed, device: DeviceKind, line: int | None) -> Fault | None:
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


def refused_by_compiler(failed: Failed, submission: str, line: int | None) -> Fault | None:
    """Return the fault for a kernel refused by the language's compiler; None for any other failure."""
    if failed.refused is not None and failed.refused.text:
        return Fault(Status.BUILD_ERROR, _refused_text(failed.refused, submission))
    language = failed_language(failed.functions)
    if language is None or not failed_in_compiler(language, failed.functions):
        return None
    return Fault(Status.BUILD_ERROR, _refused_call(language, failed, submission, line))


def _refused_call(language: Language, failed: Failed, submission: str, line: int | None) -> Finding:
    """Return the finding for an exception of a compiler, with the compiler's place, or else `line` of the call."""
    reason = _shortened(_COLOURS.sub("", failed.message).strip(_ENDS) or failed.kind)
    message = f"{language.title} does not compile the kernel: {reason}"
    for match in _PLACE.finditer(reason):
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
