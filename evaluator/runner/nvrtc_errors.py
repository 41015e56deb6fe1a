"""Compile errors of NVRTC, called by `torch.cuda._compile_kernel` inside the runner.

The same process runs the submission, and the judge trusts none of the reports: a failure with a forged reason is still
a failure.
"""

import traceback
from types import FrameType

from evaluator.protocol.frames import RefusedKernel
from evaluator.protocol.frames.bounds import MOST_KERNEL_TEXT

_COMPILER, _FUNCTION = "/torch/cuda/_utils.py", "_nvrtc_compile"
_BEGINNING = "Kernel compilation failed:"
_MOST_NAME, _MOST_REASON = 1024, 8192


def refused_source(error: BaseException) -> RefusedKernel | None:
    """Return the kernel refused by NVRTC; None for any other exception."""
    try:
        return _refused(error)
    except Exception:  # noqa: BLE001 - an exception of the submission's own class may have any attributes
        return None


def _refused(error: BaseException) -> RefusedKernel | None:
    said = str(error)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not said.startswith(_BEGINNING) or not frames or not _is_compiler(frames[-1]):
        return None
    given = frames[-1].f_locals
    return RefusedKernel(
        kernel=_sent(given.get("kernel_name"), _MOST_NAME),
        reason=_sent(said.removeprefix(_BEGINNING).strip(), _MOST_REASON),
        line=0,
        column=0,
        text=_sent(given.get("kernel_source"), MOST_KERNEL_TEXT),
    )


def _is_compiler(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name == _FUNCTION and code.co_filename.endswith(_COMPILER)


def _sent(value: object, most: int) -> str:
    return str(value).encode(errors="replace").decode()[:most]
