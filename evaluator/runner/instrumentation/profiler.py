"""PyTorch profiler trace of one call: kernels, launch counts and durations. The trace affects no timing result."""

from collections.abc import Callable

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile, schedule

from evaluator.protocol.frames import Profiled, SeenKernel

_MOST_KERNELS = 256
_MOST_NAME = 4096
_OF_THE_PROFILER = "ProfilerStep"


def profiled(call: Callable[[], object], *, gpu: bool) -> Profiled:
    """Profile `call`: GPU kernels with `gpu`, else PyTorch operations without nested operations.

    Runs `call` three times. The first run may compile and tune; the profiler starts in the second and loses its events.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    _finished(call, gpu=gpu)
    with profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=1), acc_events=True) as profiler:
        _finished(call, gpu=gpu)
        profiler.step()
        _finished(call, gpu=gpu)
    device_type = DeviceType.CUDA if gpu else DeviceType.CPU
    by_name: dict[str, tuple[int, float]] = {}
    for event in profiler.events() or []:
        if event.device_type == device_type and not event.name.startswith(_OF_THE_PROFILER):
            time_us = event.time_range.elapsed_us() if gpu else event.self_cpu_time_total
            launches, so_far_us = by_name.get(event.name, (0, 0.0))
            by_name[event.name] = launches + 1, so_far_us + max(float(time_us), 0.0)
    ordered = sorted(by_name.items(), key=lambda item: -item[1][1])
    kernels = [SeenKernel(name[:_MOST_NAME], launches, time_us) for name, (launches, time_us) in ordered]
    return Profiled(kernels=kernels[:_MOST_KERNELS], others=max(len(kernels) - _MOST_KERNELS, 0))


def _finished(call: Callable[[], object], *, gpu: bool) -> None:
    call()
    if gpu:
        torch.cuda.synchronize()
