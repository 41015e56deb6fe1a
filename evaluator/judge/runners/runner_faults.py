"""Failures of a runner converted to faults: exceptions, deaths, time-outs and invalid frames."""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from msgspec.structs import replace

from evaluator.compile.binding_errors import explained_load
from evaluator.findings import Code, entry_of, finding
from evaluator.findings.running import ADD_RETURN, HOST_CODE, HOST_READS_GPU, NAME_PLACE
from evaluator.judge.runners.language_faults import (
    kernel_fault,
    likely_cause,
    refused_by_compiler,
    triton_fault,
    unavailable_language,
)
from evaluator.protocol.frames import Frame, Raised
from evaluator.records import DeviceKind, Diagnostic, Fault, Finding, Status
from evaluator.sandbox import ExitInfo
from evaluator.sandbox.time_limit import TimeLimit
from evaluator.submission.forms import about_syntax, is_cut_off, not_python
from evaluator.submission.requirements import missing_finding, missing_language, missing_package

_MOST_OF_A_LINE = 2000
_MOST_OF_ANOTHER = 200
"""Characters of an exception after a failed build."""
# Of torch.compile, and of graphs and streams, in a PyTorch without CUDA.
_NEEDS_CUDA = re.compile(
    r"module 'torch\._C' has no attribute '(?P<name>_cuda_\w{1,100})'"
    r"|Tried to instantiate dummy base class (?P<base>\w{1,100})"
    r"|Could not run '(?P<operation>[\w:.]{1,100})' with arguments from the 'CPU' backend"
    r"|(?P<all>Torch not compiled with CUDA) enabled"
)
_BY_BUILD = "Error building extension"
"""Part of PyTorch's exception for a failed build, also raised by `evaluator/runner/extensions.py`."""
_SYNTAX_ERRORS = frozenset({"SyntaxError", "IndentationError"})


class Stage(Enum):
    """Activity of a runner, as named in messages."""

    IMPORT = "importing the submission"
    CONSTRUCT = "constructing ModelNew"
    CALL = "running forward"


_CODES = {
    Stage.IMPORT: Code.IMPORT_FAILED,
    Stage.CONSTRUCT: Code.CONSTRUCTOR_FAILED,
    Stage.CALL: Code.FORWARD_FAILED,
}


class Builds(Protocol):
    """Builds of a runner: the compiled sources by file name, the failures, and a warning about a missing return."""

    @property
    def texts(self) -> Mapping[str, str]: ...  # noqa: D102

    @property
    def failures(self) -> Sequence[Finding]: ...  # noqa: D102

    @property
    def missing_return(self) -> Diagnostic | None: ...  # noqa: D102


def failure(failed: Raised, stage: Stage, builds: Builds | None, device: DeviceKind, source: str) -> Fault:
    """Return the fault for an exception of the submission `source`, or of the runner's code around it."""
    line = failed.lines[-1][0] if failed.lines else None
    exception_text = f"{failed.kind}: {failed.message}" if failed.message else failed.kind
    if _is_out_of_memory(failed):
        message = _first_lines(f"out of memory: {exception_text}")
        return Fault(Status.RUNTIME_ERROR, finding(Code.OUT_OF_MEMORY, message, line=line))
    if stage is Stage.IMPORT and failed.kind == "NoModelNew":
        return Fault(Status.BUILD_ERROR, finding(Code.NO_MODEL_NEW, failed.message))
    if (fault := _failed_build(builds)) is not None:
        return fault if _BY_BUILD in failed.message else _with_exception(fault, exception_text, line)
    if (fault := _language_fault(failed, device, source, line)) is not None:
        return fault
    if device is DeviceKind.EMULATED and (lacking := _NEEDS_CUDA.search(failed.message)) is not None:
        name = next(filter(None, lacking.groups()))
        message = f"a PyTorch without CUDA lacks {name}: {_first_lines(exception_text, 1)}"
        return Fault(Status.INCONCLUSIVE, finding(Code.NOT_EMULATED, message, line=line, construct=name))
    texts = {} if builds is None else builds.texts
    if (kernel_finding := kernel_fault(failed.message, texts, source)) is not None:
        return Fault(entry_of(kernel_finding).status, kernel_finding)
    if (gpu_finding := _gpu_fault(failed.message, line)) is not None:
        return Fault(Status.RUNTIME_ERROR, gpu_finding)
    return refused_by_compiler(failed, source, line) or _python_error(failed, stage, texts, device, source)


def _failed_build(builds: Builds | None) -> Fault | None:
    """Return the fault of a failed build, as the cause of the submission's failure; None without a failed build."""
    if builds is None or not builds.failures:
        return None
    by_code = sorted(builds.failures, key=lambda failed: failed.code)  # Another device comes before a missing language.
    for status in (Status.INCONCLUSIVE, Status.TIMEOUT):
        for failed in by_code:
            if status in entry_of(failed).statuses:
                return Fault(status, failed)
    return Fault(Status.BUILD_ERROR, builds.failures[0])


def _with_exception(fault: Fault, exception_text: str, line: int | None) -> Fault:
    """Return the fault of an ignored failed build, with the text of the submission's last exception, if any."""
    if not exception_text:
        return fault
    location = "" if line is None else f" in line {line}"
    message = f"{fault.finding.message}; then{location}: {exception_text.splitlines()[0][:_MOST_OF_ANOTHER]}"
    return fault._replace(finding=replace(fault.finding, message=message))


def _language_fault(failed: Raised, device: DeviceKind, source: str, line: int | None) -> Fault | None:
    """Return the fault of Triton's, or of a language that is not available; None for any other failure."""
    if (refused := failed.refused) is not None and refused.text:  # NVRTC's: see `refused_by_compiler`.
        return None
    return triton_fault(failed, device, source) or unavailable_language(failed, device, line)


def _python_error(failed: Raised, stage: Stage, texts: Mapping[str, str], device: DeviceKind, source: str) -> Fault:
    """Return the fault for an exception caused by neither a build nor a device."""
    line = failed.lines[-1][0] if failed.lines else None
    exception_text = _first_lines(f"{failed.kind}: {failed.message}" if failed.message else failed.kind)
    verdict = Status.BUILD_ERROR if stage is Stage.IMPORT else Status.RUNTIME_ERROR
    package = missing_package(failed.kind, failed.message) or missing_language(failed.missing)
    if package is not None:
        missing = missing_finding(package, line, device)
        return Fault(Status.INCONCLUSIVE if missing.code == Code.LANGUAGE_MISSING.value else verdict, missing)
    if (binding := explained_load(failed.kind, failed.message, list(texts.values()), source)) is not None:
        return Fault(Status.BUILD_ERROR, binding)
    code = _CODES[stage]
    if code is Code.IMPORT_FAILED and failed.kind in _SYNTAX_ERRORS:
        if line is not None and (explanation := about_syntax(failed.lines[-1][1])) is not None:
            return Fault(verdict, not_python(line, explanation, exception_text))
        code = Code.CUT_OFF if is_cut_off(source, failed.message, line) else code
    return Fault(verdict, finding(code, exception_text, line=line))


def death(info: ExitInfo | None, stage: Stage, device: DeviceKind, source: str, builds: Builds | None = None) -> Fault:
    """Return the fault for the end of the runner's process; None stands for a process that closed its socket."""
    if info is None:
        ending = "closed its socket"
    elif info.signal is not None:
        ending = f"ended with {info.signal}"
    else:
        ending = f"exited with code {info.exit_code}"
    message = f"the submission's process {ending} while {stage.value}"
    if info is not None and info.out_of_memory:
        ran_out = finding(Code.OUT_OF_MEMORY, f"out of memory: {message}", stage=stage.name, signal=info.signal)
        return Fault(Status.RUNTIME_ERROR, ran_out)
    by = info.signal if info is not None else None
    message += likely_cause(by, device, source)
    step = {DeviceKind.CUDA: HOST_READS_GPU, DeviceKind.EMULATED: HOST_CODE}.get(device) if by == "SIGSEGV" else None
    line = None
    if by is not None and builds is not None and (warning := builds.missing_return) is not None:
        message, line = f"{message}; the compiler warned: {warning.message}", warning.submission_line
        step = ADD_RETURN
    died = finding(Code.RUNNER_DIED, message, line=line, next_step=step, stage=stage.name, signal=by)
    return Fault(Status.RUNTIME_ERROR, died)


def too_slow(stage: Stage, limit: TimeLimit) -> Fault:
    """Return the fault for a stage that reached its time limit."""
    message = f"{stage.value} took {limit}"
    return Fault(Status.TIMEOUT, finding(Code.TIMED_OUT, message, stage=stage.name))


def unexpected_frame(answer: Frame) -> Fault:
    """Return the fault for a frame that the protocol does not allow at this point."""
    message = f"the runner sent an unexpected {type(answer).__name__}"
    return Fault(Status.REJECTED, finding(Code.MALFORMED_FRAME, message))


def invalid_frame(reason: str) -> Fault:
    """Return the fault for a frame that exceeds a limit or cannot be decoded."""
    return Fault(Status.REJECTED, finding(Code.MALFORMED_FRAME, f"the runner sent an invalid frame: {reason}"))


def _is_out_of_memory(failed: Raised) -> bool:
    """Return whether a failure is an out-of-memory error: a failed CPU allocation has no exception type in PyTorch.

    A failed GPU allocation has a type, but PyTorch's error message queries NVML for other processes on the GPU. Runners
    may not use NVML, so the query fails instead.
    """
    return failed.kind in ("MemoryError", "OutOfMemoryError") or any(
        words in failed.message
        for words in ("can't allocate memory", "std::bad_alloc", "NVML_SUCCESS == DriverAPI::get()->nvml")
    )


# Error strings of CUDA (cudaGetErrorString).
_GPU_FAULTS = {
    "an illegal memory access was encountered": Code.ILLEGAL_ACCESS,
    "misaligned address": Code.ILLEGAL_ACCESS,
    "operation not supported on global/shared address space": Code.ILLEGAL_ACCESS,
    "invalid program counter": Code.ILLEGAL_ACCESS,
    "device-side assert triggered": Code.DEVICE_ASSERT,
}


def _gpu_fault(message: str, line: int | None) -> Finding | None:
    """Return the finding for a CUDA error. CUDA reports errors asynchronously: the Python line is not the cause."""
    for words, code in _GPU_FAULTS.items():
        if f"CUDA error: {words}" in message:
            name = re.search(r"cudaError\w+", message)
            step = NAME_PLACE if code is Code.ILLEGAL_ACCESS else None
            return finding(
                code, f"CUDA error: {words}{f' ({name.group()})' if name else ''}", line=line, next_step=step
            )
    return None


def _first_lines(text: str, count: int = 12) -> str:
    lines = text.strip().splitlines()
    shown = [line[:_MOST_OF_A_LINE] for line in lines[:count]]
    return "\n".join([*shown, *([f"[{len(lines) - count} more lines]"] if len(lines) > count else [])])
