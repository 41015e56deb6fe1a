"""Failures of Triton kernels: refused by the compiler, unknown to the interpreter, or on a device without Triton."""

import re

from evaluator.findings import Code, finding
from evaluator.languages.by_text import uses_triton
from evaluator.languages.installations import is_importable
from evaluator.protocol.frames import Failed, RefusedKernel
from evaluator.records import DeviceKind, Fault, Finding, Status

_MOST_REASON, _MOST_LINES, _MOST_NAME = 2000, 12, 100
_NOT_INTERPRETED = re.compile(r"(?P<what>\w{1,60}) not supported in interpreter mode")
_NO_DRIVER = re.compile(r"\d{1,9} active drivers \(")
_NOT_A_GPU_TENSOR = "cannot be accessed from Triton"
_WITHOUT_BODY = ("NoneType", "`_semantic` argument")
_OF_A_NUMBER = re.compile(r"'(?:int|float)' object has no attribute '(?:to|cast|dtype)'$")
_LIBDEVICE = re.compile(r"\blibdevice\b")


def triton_fault(failed: Failed, device: DeviceKind, source: str) -> Fault | None:
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


def _not_interpreted(failed: Failed, source: str) -> str | None:
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
