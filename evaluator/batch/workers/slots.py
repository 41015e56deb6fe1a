"""Number of concurrent grades, and the cores and GPU of each."""

import functools
import os
from collections.abc import Sequence

from evaluator.batch.workers.messages import GradePart
from evaluator.batch.workers.worker_handle import Slot
from evaluator.devices.gpu import choose, gpus
from evaluator.errors import UsageError
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind

_GPU_CORES = 2
"""Cores for each GPU without builds, for the judge and a runner: those with the lowest numbers. Where a physical core
has two threads, a build can still run on the other thread of such a core."""
_CORES_TO_SHARE = 8
"""With fewer cores for each GPU, builds use all cores."""


def slots_for(device: DeviceKind, jobs: int | None, gpus: Sequence[str] = ()) -> list[Slot]:
    """Return the slots of this machine.

    On `cpu` the host's clock measures: concurrent grades get disjoint cores, and the default is a single grade. On
    `cuda` there is a slot for each of the `gpus` (UUIDs), to check and time, and a building slot for each core (or
    `jobs`). Two cores for each GPU remain free of builds: beside builds on all cores, a check took almost twice as long
    (`docs/measured.md`).

    Raises:
        UsageError: `jobs` exceeds the number of cores on `cpu`.
    """
    cores = sorted(os.sched_getaffinity(0))
    match device:
        case DeviceKind.CPU:
            count = jobs or 1
            if count > len(cores):
                message = f"{len(cores)} cores cannot time {count} grades at once"
                raise UsageError(message, hint=f"use at most --jobs {len(cores)} with --device cpu")
            if count == 1:
                return [Slot()]
            share = len(cores) // count
            parts = [tuple(cores[n * share : (n + 1) * share]) for n in range(count)]
            return [Slot(cores=part, builds_at_once=count) for part in parts]
        case DeviceKind.EMULATED:
            count = jobs or len(cores)
            return [Slot(builds_at_once=count)] * count
        case DeviceKind.CUDA:
            reserved = _GPU_CORES * len(gpus) if len(cores) >= _CORES_TO_SHARE * len(gpus) else 0
            building, count = tuple(cores[reserved:]) if reserved else (), jobs or len(cores) - reserved
            shared = functools.partial(Slot, builds_at_once=count)
            builders = [shared(building, gpus[n % len(gpus)], GradePart.BEGIN) for n in range(count)]
            return [*(shared(gpu=gpu, part=GradePart.FINISH) for gpu in gpus), *builders]


def gpus_for(options: GradeOptions) -> list[str]:
    """Return the UUIDs of the GPUs to grade on: the requested GPU, or all; none unless the device is `cuda`.

    Raises:
        UsageError: the requested GPU does not exist.
        InfraError: this machine has no GPU.
    """
    if options.device is not DeviceKind.CUDA:
        return []
    if options.gpu is not None:
        return [choose(options.gpu).uuid]
    return [gpu.uuid for gpu in gpus()] or [choose(None).uuid]
