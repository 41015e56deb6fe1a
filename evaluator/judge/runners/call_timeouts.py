"""Time limits of a submission's calls."""

import re
from typing import NamedTuple

from evaluator.languages.registry import MARKS
from evaluator.records import DeviceKind

_REFERENCES = 20.0
_CALL_S = {DeviceKind.CUDA: 2.0, DeviceKind.EMULATED: 10.0, DeviceKind.CPU: 10.0}
"""Lower bounds of the limit. Emulated kernels are slow by nature, and a CPU is shared with other processes."""
_FIRST_CALL_S = 10.0
"""A first call loads modules, creates library handles, and may autotune."""
_COMPILING_FIRST_CALL_S = 120.0
_COMPILES = re.compile(rf"\b(?:compile|{MARKS})\b")


class CallTimeouts(NamedTuple):
    """Time limits: of a runner's first call until all work is queued, and of every later call."""

    first_call_s: float
    call_s: float


def call_timeouts(source: str, device: DeviceKind, reference_s: float, asked_s: float | None) -> CallTimeouts:
    """Return the limits for `source`: `asked_s`, else 20 times the reference's time, at least some seconds.

    JIT compilers (Triton, TileLang, torch.compile) run in the first call. The text is searched for their names: a
    misleading text gains only time.
    """
    if asked_s is not None:
        return CallTimeouts(asked_s, asked_s)
    call_s = max(_CALL_S[device], _REFERENCES * reference_s)
    first_s = _COMPILING_FIRST_CALL_S if _COMPILES.search(source) else _FIRST_CALL_S
    return CallTimeouts(max(first_s, call_s), call_s)
