"""How many grades are made side by side, and what each has for itself."""

import os
from collections.abc import Sequence

from evaluator.batch.workers.messages import Part
from evaluator.batch.workers.worker_handle import Slot
from evaluator.devices.gpu import choose, gpus
from evaluator.errors import UsageError
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind


def slots_for(device: DeviceKind, jobs: int | None, gpus: Sequence[str] = ()) -> list[Slot]:
    """Share out this machine.

    On `cpu` the clock is the host's: each of several grades gets cores that no other uses, and without a wish there is
    only one. On `cuda` there is a slot for each core (or `jobs`) that builds, and one for each of the GPUs (UUIDs in
    `gpus`) that checks and times what is built.

    Raises:
        UsageError: more grades at once are wanted on `cpu` than there are cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    match device:
        case DeviceKind.CPU:
            wanted = jobs or 1
            if wanted > len(cores):
                message = f"{len(cores)} cores cannot time {wanted} grades at once"
                raise UsageError(message, hint=f"use at most --jobs {len(cores)} with --device cpu")
            if wanted == 1:
                return [Slot()]
            share = len(cores) // wanted
            return [Slot(cores=tuple(cores[n * share : (n + 1) * share])) for n in range(wanted)]
        case DeviceKind.EMULATED:
            return [Slot()] * (jobs or len(cores))
        case DeviceKind.CUDA:
            builders = [Slot(gpu=gpus[n % len(gpus)], part=Part.BEGIN) for n in range(jobs or len(cores))]
            return [*(Slot(gpu=gpu, part=Part.FINISH) for gpu in gpus), *builders]


def gpus_for(options: GradeOptions) -> list[str]:
    """Return the UUIDs of the GPUs to grade on: the one asked for, or all; none off `cuda`.

    Raises:
        UsageError: a GPU is asked for that is not there.
        InfraError: there is none.
    """
    if options.device is not DeviceKind.CUDA:
        return []
    if options.gpu is not None:
        return [choose(options.gpu).uuid]
    return [gpu.uuid for gpu in gpus()] or [choose(None).uuid]
