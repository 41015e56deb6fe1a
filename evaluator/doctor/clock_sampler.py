"""Program of `warpgrade doctor --clocks`: times a short kernel again and again, and reads the GPU's clock meanwhile.

Prints a list of pairs as JSON: the time of one launch in microseconds, the multiprocessors' clock in MHz.
"""

import json
import sys
import time

_EDGE = 1024
_LAUNCHES = 20
"""Launches between two events, so that an event's own time does not matter."""
_SAMPLED_S = 2.0


def main() -> None:
    """Measure the GPU whose UUID is the first argument."""
    import torch

    from evaluator.devices.gpu import choose, look_at_clock

    gpu = choose(sys.argv[1])
    left, right = torch.randn(2, _EDGE, _EDGE, device="cuda")
    product = torch.empty_like(left)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    found: list[tuple[float, int]] = []
    until = time.monotonic() + _SAMPLED_S
    while time.monotonic() < until:
        start.record()
        for _ in range(_LAUNCHES):
            torch.mm(left, right, out=product)
        end.record()
        look = look_at_clock(gpu)  # The launches are still running.
        torch.cuda.synchronize()
        if look is not None:
            found.append((start.elapsed_time(end) / _LAUNCHES * 1e3, look.sm_mhz))
    print(json.dumps(found[len(found) // 10 :]))  # noqa: T201 - the first samples find an idle GPU's clock
