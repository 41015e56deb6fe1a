"""How long a call of a submission may take."""

import re
from typing import NamedTuple

from evaluator.records import DeviceKind

_REFERENCES = 20.0
_CALL_S = {DeviceKind.CUDA: 2.0, DeviceKind.EMULATED: 10.0, DeviceKind.CPU: 10.0}
"""Or so long where that is more. Emulated kernels take what they take, and a CPU is shared with whatever else runs."""
_FIRST_CALL_S = 10.0
"""A first call loads modules, makes handles of libraries, and may try what is fastest."""
_COMPILING_FIRST_CALL_S = 120.0
_COMPILES = re.compile(r"\btriton\b|\bcompile\b")


class CallTimeouts(NamedTuple):
    """Limits for a runner's first call until its work is queued, and for each after it."""

    first_call_s: float
    call_s: float


def call_timeouts(source: str, device: DeviceKind, reference_s: float, asked_s: float | None) -> CallTimeouts:
    """Set limits for `source`: `asked_s` for every call, or twenty times what the reference took and seconds at least.

    What compiles itself does so in its first call. That its text says so is enough: a false word gains only time.
    """
    if asked_s is not None:
        return CallTimeouts(asked_s, asked_s)
    call_s = max(_CALL_S[device], _REFERENCES * reference_s)
    first_s = _COMPILING_FIRST_CALL_S if _COMPILES.search(source) else _FIRST_CALL_S
    return CallTimeouts(max(first_s, call_s), call_s)
