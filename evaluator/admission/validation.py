"""`warpgrade problems validate`: tests problems with negative controls."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from evaluator.catalog import find_problem, list_problems
from evaluator.devices.gpu import Gpu, choose, leased, show_only
from evaluator.errors import UsageError
from evaluator.records import Admission, CaseName, DeviceKind, Problem, SizeName

_LEASE_WAIT_S = 600.0


def validate(
    names: Sequence[str], folder: Path | None, size: CaseName | None, device: DeviceKind
) -> Iterator[Admission]:
    """Yield the admission of each problem in `names`, or of all in `folder`, after tests with negative controls.

    Raises:
        ProblemError: a problem is broken.
        UsageError: a problem lacks the size, or does not fit into memory.
    """
    problems = [find_problem(name, folder) for name in names] if names else _all(folder)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with on_device(device) as gpu:
        from evaluator.admission.admission import admit
        from evaluator.devices.out_of_memory import out_of_memory
        from evaluator.judge.setup.memory_plan import refuse_what_does_not_fit

        for problem in problems:
            chosen = size_of(problem, size)
            refuse_what_does_not_fit(problem, chosen, gpu)
            try:
                with out_of_memory():
                    admission = admit(problem, chosen, place_of(device))
            except MemoryError as error:
                owner = "this machine" if gpu is None else "the GPU"
                message = f"{problem.name} at size {chosen} does not fit into the memory of {owner}"
                raise UsageError(message, hint="use a smaller size: --size small") from error
            yield admission


def _all(folder: Path | None) -> list[Problem]:
    listing = list_problems(folder)
    if listing.broken:
        raise listing.broken[0]
    return listing.problems


def size_of(problem: Problem, requested: CaseName | None) -> CaseName:
    """Return the wanted size, else small, else full. Raises UsageError if the problem lacks the wanted size."""
    chosen = requested or (SizeName.SMALL if SizeName.SMALL in problem.cases else SizeName.FULL)
    if chosen not in problem.cases:
        raise UsageError(f"{problem.name} has no case {chosen}", hint=f"its cases: {', '.join(problem.cases)}")
    return chosen


def place_of(device: DeviceKind) -> str:
    """Return PyTorch's name of the device that computes the reference."""
    return "cuda" if device is DeviceKind.CUDA else "cpu"


@contextlib.contextmanager
def on_device(device: DeviceKind) -> Iterator[Gpu | None]:
    """Lease a GPU exclusively if `device` is cuda. Computation on the GPU uses true fp32."""
    if device is not DeviceKind.CUDA:
        yield None
        return
    gpu = choose(None)
    os.environ.update(show_only(gpu.uuid))
    import torch

    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    with leased(gpu, _LEASE_WAIT_S):
        yield gpu
