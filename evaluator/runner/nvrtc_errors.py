"""Compile errors of NVRTC, called by `torch.cuda._compile_kernel` or CuPy inside the runner.

Both are recognized by the frame that calls NVRTC, which also has the compiled text. The same process runs the
submission, and the judge trusts none of the reports: a failure with a forged reason is still a failure.
"""

import traceback
from types import FrameType

from evaluator.protocol.frames import RefusedKernel
from evaluator.protocol.frames.bounds import MOST_KERNEL_TEXT

_BEGINNING = "Kernel compilation failed:"
"""Beginning of PyTorch's message, in front of NVRTC's log."""
_FILE = ".cu"
"""Name of a nameless kernel's file in a log, as the judge looks it up."""
_OF_CUPY = "CompileException"
_MOST_NAME, _MOST_REASON = 1024, 8192


def refused_source(error: BaseException) -> RefusedKernel | None:
    """Return the kernel refused by NVRTC; None for any other exception."""
    try:
        return _refused(error)
    except Exception:  # noqa: BLE001 - an exception of the submission's own class may have any attributes
        return None


def _refused(error: BaseException) -> RefusedKernel | None:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not frames:
        return None
    message, values = str(error), frames[-1].f_locals
    if _is(frames[-1], "_nvrtc_compile", "/torch/cuda/_utils.py") and message.startswith(_BEGINNING):
        return _kernel(values.get("kernel_name"), message.removeprefix(_BEGINNING).strip(), values.get("kernel_source"))
    if _is(frames[-1], "_NVRTCProgram.compile", "/cupy/cuda/compiler.py") and type(error).__name__ == _OF_CUPY:
        program = values["self"]
        # CuPy names the file after a hash, in a temporary folder.
        return _kernel("", message.replace(program.name, _FILE) if program.name else message, program.src)
    return None


def _is(frame: FrameType, function: str, file: str) -> bool:
    return frame.f_code.co_qualname == function and frame.f_code.co_filename.endswith(file)


def _kernel(name: object, reason: str, text: object) -> RefusedKernel:
    return RefusedKernel(
        kernel=_sent(name, _MOST_NAME),
        reason=_sent(reason, _MOST_REASON),
        line=0,
        column=0,
        text=_sent(text, MOST_KERNEL_TEXT),
    )


def _sent(value: object, most: int) -> str:
    return str(value).encode(errors="replace").decode()[:most]
