"""`warpgrade problems validate`: tests problems with negative controls and stores their input distributions."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from evaluator.catalog import find_problem, list_problems
from evaluator.catalog.lock import LOCK_FILE, Lock, fits, lock_text, read_lock
from evaluator.catalog.origin import Origin
from evaluator.devices.gpu import Gpu, choose, leased, show_only
from evaluator.errors import ProblemError, UsageError
from evaluator.records import Admission, DeviceKind, Problem, SizeName

_LEASE_WAIT_S = 600.0


def validate(
    names: Sequence[str], folder: Path | None, size: SizeName | None, device: DeviceKind, *, write: bool
) -> Iterator[Admission]:
    """Yield the admission of each problem in `names`, or of all in `folder`, after tests with negative controls.

    With `write`, each problem's lock is written first. An existing lock for another text is an error.

    Raises:
        ProblemError: a problem is broken, or its lock is out of date.
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
                    if write:
                        _write_lock(problem, chosen, device)
                    _check_lock(problem)
                    admission = admit(problem, chosen, place_of(device))
            except MemoryError as error:
                owner = "this machine" if gpu is None else "the GPU"
                message = f"{problem.name} at size {chosen.value} does not fit into the memory of {owner}"
                raise UsageError(message, hint="use a smaller size: --size small") from error
            yield admission


def _all(folder: Path | None) -> list[Problem]:
    listing = list_problems(folder)
    if listing.broken:
        raise listing.broken[0]
    return listing.problems


def size_of(problem: Problem, requested: SizeName | None) -> SizeName:
    """Return the wanted size, else small, else full. Raises UsageError if the problem lacks the wanted size."""
    chosen = requested or (SizeName.SMALL if SizeName.SMALL in problem.sizes else SizeName.FULL)
    if chosen not in problem.sizes:
        raise UsageError(f"{problem.name} has no size {chosen.value}", hint=f"its sizes: {', '.join(problem.sizes)}")
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


def _write_lock(problem: Problem, size: SizeName, device: DeviceKind) -> None:
    """Decide the input distributions and replace the lock atomically. Other sizes keep their decisions.

    The decided sizes are `size` and the smaller ones. With the full size, decided on a GPU, smaller sizes are added
    only if their decision is missing.
    """
    if problem.origin == Origin.KERNELBENCH:
        raise UsageError(
            f"{problem.name} is a single file, without room for a lock",
            hint=f"decide on the file alone: warpgrade problems decide {problem.name}",
        )
    from evaluator.judge.inputs.input_distributions import RULES
    from evaluator.judge.reference.reference import Reference
    from evaluator.judge.setup.distribution_mix import LOCK_SEED, decide, distribution_mix_of
    from evaluator.judge.setup.elementwise import rows_to_keep

    path = Path(problem.path) / LOCK_FILE
    before = None
    with contextlib.suppress(ProblemError):  # The new lock replaces a broken one.
        before = read_lock(path, shipped=problem.origin == Origin.WARPGRADE)
    sizes = dict(before.sizes) if before is not None and fits(before, problem, RULES) else {}
    smaller = {SizeName.SMALL, SizeName.AWKWARD} & set(problem.sizes)
    for name in {size} | (smaller - set(sizes) if size is SizeName.FULL else smaller):
        sizes[name] = decide(Reference(problem, name, LOCK_SEED, place_of(device)), name)
        if distribution_mix_of(sizes[name]).untried:
            raise MemoryError(f"no decision about the input distributions of size {name.value}: memory was short")
    rows = rows_to_keep(Reference(problem, size, LOCK_SEED, place_of(device)), size)
    lock = Lock(problem=problem.sha256, rules=RULES, sizes=sizes, row_sites=rows)
    draft = path.with_name(f".{LOCK_FILE}.{os.getpid()}")
    try:
        draft.write_text(lock_text(lock), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)


def _check_lock(problem: Problem) -> None:
    from evaluator.judge.inputs.input_distributions import RULES

    path = Path(problem.path) / LOCK_FILE
    lock = read_lock(path, shipped=problem.origin == Origin.WARPGRADE)
    if lock is not None and not fits(lock, problem, RULES):
        raise ProblemError(
            f"{path} is for an older version of {problem.name} or of the profiles",
            hint=f"warpgrade problems validate {problem.name} --write",
        )
