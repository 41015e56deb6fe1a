"""Check `evaluator/kernelbench_sizes.json` against a checkout of KernelBench: run every file at its small size.

No dimension may be one there that is larger at full size: a kernel that sums or broadcasts along the wrong one would be
right. Shapes of both sizes come from the meta device.

    python -m benchmarks.verdicts.kernelbench_sizes path/to/KernelBench

Each file runs in a process of its own, on the CPU, with one thread. `level3/48` and `level3/49` import `einops`.
The exit status is 0 when every file of levels 1 to 3 is in the table and ran within the limits.
"""

import argparse
import contextlib
import multiprocessing
import resource
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, NamedTuple

import torch

from evaluator.catalog import list_problems, sized_source
from evaluator.problem_code import CudaMeans
from evaluator.protocol import model_call
from evaluator.records import Problem, SizeName
from evaluator.roofline.work_count import arguments, on_meta, registered
from evaluator.sizes.degenerate import FILE, Degenerate, Operation, Operations, made_one

LEVELS = (1, 2, 3)
THREADS = 1  # more would make the seconds depend on who else uses the machine
SECONDS_LIMIT = 5.0
PEAK_MIB_LIMIT = 1024
KILLED_AFTER_S = 30.0
DATA_BYTES_LIMIT = 4 * 2**30
WEIGHT_SEED = 0


class Run(NamedTuple):
    """One forward at the small size. `seconds` is for constructor, inputs and forward; `peak_mib` includes torch."""

    seconds: float
    peak_mib: float
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.seconds:8.3f} {self.peak_mib:6.0f}  {self.shape} {self.dtype}"


class Row(NamedTuple):
    """A file, how it ran (if it did) and what is wrong with that (empty: nothing)."""

    name: str
    run: Run | None
    miss: str


def run_source(source: str, *, double: bool) -> Run:
    """Execute a reference and call its `Model` once."""
    warnings.simplefilter("ignore")  # a file's warnings are its author's
    torch.set_num_threads(THREADS)
    torch.manual_seed(WEIGHT_SEED)
    module: dict[str, Any] = {"__name__": "reference"}
    started = time.perf_counter()
    exec(compile(source, "reference.py", "exec"), module)
    model = module["Model"](*module["get_init_inputs"]())
    inputs = module["get_inputs"]()
    if double:
        model = model.double()
        is_float = [isinstance(value, torch.Tensor) and value.is_floating_point() for value in inputs]
        inputs = [value.double() if wide else value for value, wide in zip(inputs, is_float, strict=True)]
    with torch.no_grad():
        output = model(*inputs)
    seconds = time.perf_counter() - started
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if output.numel() == 0 or not output.isfinite().all():
        raise ValueError(f"the output of shape {tuple(output.shape)} is empty or not finite")
    return Run(seconds, peak_mib, tuple(output.shape), str(output.dtype).removeprefix("torch."))


def answer(sender: Connection, source: str, *, double: bool) -> None:
    """Run `source` under a memory limit, and send the `Run`, or what went wrong as text."""
    # Not the address space: a CUDA build of torch maps gigabytes of code.
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_LIMIT, DATA_BYTES_LIMIT))
    try:
        sender.send(run_source(source, double=double))
    except Exception as error:  # noqa: BLE001 - an exception of a file is its result
        sender.send(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


def run_apart(source: str, context: ForkServerContext, *, double: bool) -> Run | str:
    """Run `source` in a fresh process; give its `Run`, or why there is none."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(sender, source), kwargs={"double": double})
    process.start()
    sender.close()
    try:
        if not receiver.poll(KILLED_AFTER_S):
            return f"killed after {KILLED_AFTER_S:.0f} s"
        outcome: Run | str = receiver.recv()
    except EOFError:
        process.join()
        return f"died, exit code {process.exitcode}"
    finally:
        process.kill()
        process.join()
    return outcome


def check(problem: Problem, context: ForkServerContext, *, double: bool) -> Row:
    """Run one file and hold it to the limits."""
    if SizeName.SMALL not in problem.cases:
        return Row(problem.name, None, f"not in the table: sha256 {problem.sha256}")
    run = run_apart(sized_source(problem, SizeName.SMALL), context, double=double)
    if isinstance(run, str):
        return Row(problem.name, None, run)
    misses = []
    if run.seconds > SECONDS_LIMIT:
        misses.append(f"slower than {SECONDS_LIMIT} s")
    if run.peak_mib > PEAK_MIB_LIMIT:
        misses.append(f"more than {PEAK_MIB_LIMIT} MiB")
    return Row(problem.name, run, ", ".join([*misses, *degenerate_misses(problem)]))


def degenerate(problem: Problem, sizes: Iterable[SizeName] = (SizeName.SMALL,)) -> list[Degenerate]:
    """Return the dimensions that are 1 at one of `sizes` and larger at full size.

    Each is listed once for a size, in the order of the operations.

    Raises:
        ProblemError: the problem lacks one of the sizes.
        Exception: raised by the reference on the meta device.
    """
    full = _run(sized_source(problem, SizeName.FULL))
    return [entry for size in sizes for entry in made_one(_run(sized_source(problem, size)), full)]


def _run(source: str) -> list[Operation]:
    try:
        return _operations(source, torch.device("meta"))
    except RuntimeError:  # The constructor needs values, for example of a schedule.
        return _operations(source, torch.device("cpu"))


def _operations(source: str, constructed_on: torch.device) -> list[Operation]:
    with contextlib.redirect_stdout(sys.stderr), registered() as module, torch.no_grad():
        exec(compile(source, FILE, "exec"), module.__dict__)
        names = module.__dict__
        with constructed_on:
            init_args, init_kwargs = arguments(names["get_init_inputs"])
            model = names["Model"](*init_args, **init_kwargs).to("meta")
        with torch.device("meta"), CudaMeans(torch.device("meta")):
            args, kwargs = (on_meta(values) for values in arguments(names["get_inputs"]))
            recorder = Operations()
            with recorder:
                model_call.forward(model, args, kwargs)
        return recorder.operations


def degenerate_misses(problem: Problem) -> list[str]:
    """Say which dimensions the small size makes one, the first of them alone."""
    try:
        found = degenerate(problem)
    except Exception as error:  # noqa: BLE001 - an exception of a file is its result
        return [f"no shapes: {type(error).__name__}: {str(error).partition(chr(10))[0]}"]
    return [f"{len(found)} dimensions of one, first at line {found[0].line}: {found[0]}"] if found else []


def check_all(folder: Path, *, double: bool) -> Iterator[Row]:
    """Check every file of levels 1 to 3 in a checkout, in order."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    listing = list_problems(folder)
    for error in listing.broken:
        yield Row(error.message, None, "cannot be read")
    for problem in listing.problems:
        if problem.level in LEVELS:
            yield check(problem, context, double=double)


def main() -> int:
    """Print the table and the misses; give the exit status."""
    parser = argparse.ArgumentParser(description="Run KernelBench's files at their small sizes.")
    parser.add_argument("folder", metavar="DIR", type=Path, help="a checkout, or its KernelBench/ folder")
    parser.add_argument("--double", action="store_true", help="run in float64")
    options = parser.parse_args()
    rows = []
    print(f"{'name':<60} {'seconds':>8} {'MiB':>6}  output")
    for row in check_all(options.folder, double=options.double):
        print(f"{row.name[:60]:<60} {row.run or ''}", flush=True)
        rows.append(row)
    misses = [row for row in rows if row.miss]
    print(f"\n{len(rows)} files, {len(misses)} misses")
    for row in misses:
        print(f"  {row.name}: {row.miss}")
    return 0 if rows and not misses else 1


if __name__ == "__main__":
    sys.exit(main())
