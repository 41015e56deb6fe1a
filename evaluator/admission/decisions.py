"""`warpgrade problems decide`: decisions about bare files, made before the first grade of each.

The decisions go into the cache, where grades on this machine find them, and into the table of `--output`. Each decision
is written when it is made: an interrupted command continues.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from evaluator.admission.validation import on_device, place_of, size_of
from evaluator.catalog import find_problem, list_problems
from evaluator.catalog.lock import RowSitesLock, SizeLock, fits
from evaluator.catalog.origin import Origin
from evaluator.catalog.stored_locks import FileLock, lock_of, read_table, small_constants, table_text
from evaluator.devices.gpu import Gpu
from evaluator.errors import ProblemError, UsageError
from evaluator.files.card_files import write_whole
from evaluator.records import DeviceKind, FileDecision, Problem, SizeName
from evaluator.sizes.found_sizes import with_sizes

_DEPENDS_ON_WEIGHTS = "the usable distributions depend on the weights: the first grade decides"


def decide_files(
    names: Sequence[str], folder: Path | None, size: SizeName | None, device: DeviceKind, table: Path | None
) -> Iterator[FileDecision]:
    """Yield the decision about each bare file in `names`, or about all in `folder`. A failure does not end the command.

    The file `table` receives the decisions too, after each file. Its other entries stay.

    Raises:
        ProblemError: no problem has the name, or the table is broken.
        UsageError: there is no bare file, or the table cannot be written.
    """
    problems = _bare_files(names, folder)
    if table is not None:
        read_table(table)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with on_device(device) as gpu, _one_thread():
        for problem in problems:
            try:
                yield _decided_on(problem, size, device, gpu, table)
            except (ProblemError, MemoryError) as error:
                why_not = error.message if isinstance(error, ProblemError) else "it does not fit into memory"
                yield FileDecision(problem.name, size, why_not=why_not)


def _bare_files(names: Sequence[str], folder: Path | None) -> list[Problem]:
    problems = [find_problem(name, folder) for name in names] if names else list_problems(folder).problems
    bare_files = [problem for problem in problems if problem.origin == Origin.KERNELBENCH]
    with_folder = [problem.name for problem in problems if problem.origin != Origin.KERNELBENCH]
    if names and with_folder:
        message = f"{with_folder[0]} has a folder, and its decisions are in the folder's lock"
        raise UsageError(message, hint=f"warpgrade problems validate {with_folder[0]} --write")
    if not bare_files:
        raise UsageError("there are no bare files to decide on", hint="add --problems DIR, or name files")
    return bare_files


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Compute with a single thread: sums then have the same order on every machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _decided_on(
    problem: Problem, size_name: SizeName | None, device: DeviceKind, gpu: Gpu | None, table: Path | None
) -> FileDecision:
    """Decide on one file, unless the table has the decision. Raises ProblemError or MemoryError."""
    from evaluator.devices.out_of_memory import out_of_memory
    from evaluator.judge.setup.distribution_mix import distribution_mix_of
    from evaluator.judge.setup.memory_plan import refuse_what_does_not_fit

    if size_name is not None:
        problem = with_sizes(problem, (size_name,))
    try:
        size = size_of(problem, size_name)
        refuse_what_does_not_fit(problem, size, gpu)
    except UsageError as error:
        return FileDecision(problem.name, size_name, why_not=error.message)
    if table is not None and (earlier := _decision_in(problem, size, table)) is not None:
        return earlier
    with out_of_memory():
        if (decision := _decide(problem, size, place_of(device))) is None:
            return FileDecision(problem.name, size, why_not=_DEPENDS_ON_WEIGHTS)
    lock, sites = decision
    if untried := distribution_mix_of(lock).untried:
        return FileDecision(problem.name, size, why_not=lock.left_out[untried[0]])
    if table is not None:
        _write(problem, size, lock, sites, table)
    return FileDecision(problem.name, size, lock.use, len(sites.sites))


def _decision_in(problem: Problem, size: SizeName, table: Path) -> FileDecision | None:
    """Return the decision that the table has, if complete and for the present rules."""
    from evaluator.judge.inputs.input_distributions import RULES
    from evaluator.judge.setup.row_sites import SITE_RULES

    entry = read_table(table).get(problem.sha256)
    lock = None if entry is None else lock_of(problem, entry)
    if lock is None or not fits(lock, problem, RULES) or size not in lock.sizes:
        return None
    if lock.row_sites is None or lock.row_sites.rules != SITE_RULES or lock.row_sites.elementwise is None:
        return None
    return FileDecision(problem.name, size, lock.sizes[size].use, len(lock.row_sites.sites), is_new=False)


def _decide(problem: Problem, size: SizeName, device: str) -> tuple[SizeLock, RowSitesLock] | None:
    """Decide under the fixed weight seed, also where a table or the cache has a decision; None for a doubtful one.

    In KernelBench's level 2, 58, a single drawn bias saturates the output: with it, no distribution says anything. A
    decision is doubtful if other weights support other distributions.
    """
    from evaluator.judge.reference.reference import Reference
    from evaluator.judge.setup.distribution_mix import LOCK_SEED, decide, remember
    from evaluator.judge.setup.elementwise import rows_to_keep

    reference = Reference(problem, size, LOCK_SEED, device)
    lock = decide(reference, size)
    if reference.state() and decide(Reference(problem, size, LOCK_SEED + 1, device), size).use != lock.use:
        return None
    remember(problem, size, device, lock)
    return lock, rows_to_keep(reference, size)


def _write(problem: Problem, size: SizeName, lock: SizeLock, sites: RowSitesLock, path: Path) -> None:
    """Add a decision to the table. Decisions about other sizes stay, if they are for the same rules and small size."""
    from evaluator.judge.inputs.input_distributions import RULES

    table = read_table(path)
    fresh = FileLock(name=problem.name, rules=RULES, small=small_constants(problem))
    entry = table.get(problem.sha256, fresh)
    if (entry.rules, entry.small) != (fresh.rules, fresh.small):
        entry = fresh
    sizes = {name: size_lock for name in SizeName if (size_lock := {**entry.sizes, size: lock}.get(name)) is not None}
    table[problem.sha256] = replace(entry, name=problem.name, sizes=sizes, row_sites=sites)
    try:
        write_whole(path.resolve(), table_text(table).encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
