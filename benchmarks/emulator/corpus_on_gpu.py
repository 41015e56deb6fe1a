"""Run the corpus of `tests/corpus` on a GPU without Warpgrade and record the outcome of each entry.

    python -m benchmarks.emulator.corpus_on_gpu results.json [--only NAME ...]

The verdicts of the emulated device are compared with the outcomes. PyTorch's builder compiles each submission, and each
runs in a separate process, so that an illegal access or a hang ends one entry only. Warpgrade contributes the problems
and the comparison.

`results.json` maps each name to `status` (`correct`, `wrong_result`, `runtime_error` or `build_error`), `detail` and
`seconds`. It is written after every entry, and entries that it holds already are not run again.
The exit status is 0 when nothing contradicts what the entries expect of a GPU.
"""

import argparse
import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import torch
from torch import nn

from evaluator.judge.compare.tensor_comparison import Sides, compare
from evaluator.judge.compare.tolerance import bounds
from evaluator.records import SizeName, Status, ToleranceRule
from tests.corpus.entries import UNDEFINED, Entry, entries
from tests.naive import called, models, moved, reference_module, submission_class, tensors

TOP = Path(__file__).resolve().parents[2]

WORKERS = 14
SEEDS = (1, 2, 3)
BUILD_LIMIT_S = 300.0
"""A compilation takes about 70 s with one compiler per core."""
CALL_LIMIT_S = 40
"""Counted from the end of the build. SIGALRM ends a hanging kernel without a Python handler."""
Tensors = list[torch.Tensor]
BUILD_FAILED = "Error building extension"
_FOLDER = re.compile(r"(?<!\S)/\S*/(?=[\w.+-]+[:(]\d)")
"""The temporary folder of a file in a compiler message."""
_THREAD = re.compile(r"\(most recent call first\):\n\s+File \"[^\"\n]*?([^/\"\n]+)\", line (\d+) in (\S+)")
"""The innermost Python frame of each thread, as `faulthandler` writes them."""


class Outcome(NamedTuple):
    """The outcome of an entry on the GPU."""

    status: Status
    detail: str
    seconds: float


def run_all(wanted: list[Entry], results: Path, workers: int) -> dict[str, Outcome]:
    """Run entries side by side, and write all outcomes to `results` after each of them."""
    outcomes = _read(results)
    todo = [entry for entry in wanted if entry.name not in outcomes]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(run_apart, entry, Path(scratch, entry.name)): entry for entry in todo}
        for done in as_completed(running):
            entry, outcome = running[done], done.result()
            outcomes[entry.name] = outcome
            _write(results, outcomes)
            mark = " " if agrees(entry, outcome) else "!"
            print(f"{mark} {entry.name:26} {outcome.status:14} {outcome.seconds:6.1f}  {outcome.detail}", flush=True)
    return outcomes


def run_apart(entry: Entry, scratch: Path) -> Outcome:
    """Build and call a submission in a separate process."""
    scratch.mkdir()
    answer = scratch / "answer.json"
    environment = os.environ | {
        "TORCH_EXTENSIONS_DIR": str(scratch / "extensions"),
        "TORCH_CUDA_ARCH_LIST": os.environ.get("TORCH_CUDA_ARCH_LIST", "9.0a"),
        "MAX_JOBS": "1",
        "PYTHONPATH": os.pathsep.join([str(TOP), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, "-m", "benchmarks.emulator.corpus_on_gpu", "--answer", str(answer), "--only", entry.name]
    started = time.monotonic()
    with (scratch / "output.txt").open("w") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, cwd=scratch, start_new_session=True
        )
        try:
            process.wait(BUILD_LIMIT_S + CALL_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    seconds = round(time.monotonic() - started, 1)
    if answer.exists():
        said = json.loads(answer.read_text())
        return Outcome(Status(said["status"]), said["detail"], seconds)
    if process.returncode == -signal.SIGALRM:
        frames = _THREAD.findall((scratch / "output.txt").read_text(errors="replace"))
        where = ", ".join(f"{name} ({file}:{line})" for file, line, name in frames) or "an unknown place"
        hangs = f"hangs in {where}: no answer within {CALL_LIMIT_S} s of the build"
        return Outcome(Status.RUNTIME_ERROR, hangs[:300], seconds)
    last = (scratch / "output.txt").read_text(errors="replace").strip().splitlines()[-1:]
    return Outcome(Status.RUNTIME_ERROR, " ".join([f"died with status {process.returncode}", *last])[:300], seconds)


def answer_for(entry: Entry) -> tuple[Status, str]:
    """Build a submission, call the model with every seed, and compare; an exception becomes the outcome."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    reference = reference_module(entry.problem(), SizeName.SMALL)
    try:
        model_new = submission_class(entry.submission(Path.cwd()))
    except Exception as error:  # noqa: BLE001 - a submission may raise anything
        text = str(error)
        if BUILD_FAILED in text:
            return Status.BUILD_ERROR, _first_error(text)
        return Status.RUNTIME_ERROR, _line(error)
    faulthandler.dump_traceback_later(CALL_LIMIT_S - 2)
    signal.alarm(CALL_LIMIT_S)
    try:
        for seed in SEEDS:
            fault = fault_of_call(entry, reference, model_new, seed)
            if fault:
                return Status.WRONG_RESULT, f"seed {seed}: {fault}"
    except Exception as error:  # noqa: BLE001 - a submission may raise anything
        return Status.RUNTIME_ERROR, _line(error)
    return Status.CORRECT, ""


def fault_of_call(entry: Entry, reference: ModuleType, model_new: type, seed: int) -> str:
    """Call both sides once; return the submission's fault, or an empty text.

    The comparison runs on the CPU: on the GPU, its kernels would raise the pending error of a refused launch, as if
    the submission had detected the error.
    """
    problem = entry.problem()
    torch.manual_seed(seed)
    inputs = moved(reference.get_inputs(), "cuda")
    model, candidate = models(reference, model_new, "cuda")
    if problem.backward:
        honest = [value.cpu() for value in with_gradients(model, inputs, seed)]
        poison(honest)
        actual = [value.cpu() for value in with_gradients(candidate, inputs, seed)]
        return difference(entry, actual, honest, honest)
    with torch.no_grad():
        honest = [value.cpu() for value in tensors(called(model, inputs))]
        exact = [value.cpu() for value in tensors(called(model.double(), widened(inputs)))]
        poison(honest)
        actual = tensors(called(candidate, inputs))
    torch.cuda.synchronize()
    return difference(entry, [value.cpu() for value in actual], honest, exact)


def with_gradients(model: nn.Module, inputs: Any, seed: int) -> list[torch.Tensor]:
    """Return the output of a model and the gradients of the inputs."""
    leaves = [leaf.detach().clone().requires_grad_() for leaf in tensors(inputs)]
    output = model(*leaves)
    torch.manual_seed(seed)
    output.backward(torch.randn_like(output))
    torch.cuda.synchronize()
    return [output.detach(), *(leaf.grad for leaf in leaves)]


def poison(like: Iterable[torch.Tensor]) -> None:
    """Fill the allocator's free blocks with NaN (-1 in integers), so that an unwritten output is wrong.

    Otherwise the submission may receive the block that still holds the reference's result.
    """
    kept = []
    for value in like:
        fill = float("nan") if value.is_floating_point() else -1
        kept += [torch.empty_like(value, device="cuda").fill_(fill) for _ in range(8)]
    torch.cuda.synchronize()


def widened(value: Any) -> Any:
    """Convert floating tensors of nested values to float64."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: widened(item) for key, item in value.items()}
    return [widened(item) for item in value] if isinstance(value, list | tuple) else value


def difference(entry: Entry, actual: Tensors, honest: Tensors, exact: Tensors) -> str:
    """Compare like the judge; return the difference, or an empty text."""
    if len(actual) != len(honest):
        return f"{len(actual)} outputs instead of {len(honest)}"
    for place, (got, plain, wide) in enumerate(zip(actual, honest, exact, strict=True)):
        if got.shape != plain.shape or got.dtype != plain.dtype:
            return f"output {place} is {got.dtype} {tuple(got.shape)}, not {plain.dtype} {tuple(plain.shape)}"
        if plain.is_floating_point():
            limits = bounds(ToleranceRule.MEASURED, entry.problem(), plain.dtype)
            check = compare(f"output {place}", Sides(got, wide, plain), limits)
        else:
            check = compare(f"output {place}", Sides(got, plain, plain), None)
        if not check.ok:
            return f"output {place}: {check.mismatches} of {plain.numel()} wrong, first {check.first_mismatch}"
    return ""


def agrees(entry: Entry, outcome: Outcome) -> bool:
    """Return whether the GPU's outcome equals the expected outcome."""
    return entry.expected.gpu in {UNDEFINED, outcome.status}


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines()]
    first = next((line for line in lines if "error:" in line or "undefined symbol" in line), lines[0])
    return _FOLDER.sub("", first)[:300]


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:300]


def _read(results: Path) -> dict[str, Outcome]:
    if not results.exists():
        return {}
    stored = json.loads(results.read_text())
    return {name: Outcome(Status(row["status"]), row["detail"], row["seconds"]) for name, row in stored.items()}


def _write(results: Path, outcomes: dict[str, Outcome]) -> None:
    rows = {name: outcome._asdict() for name, outcome in sorted(outcomes.items())}
    partial = results.with_suffix(".partial")
    partial.write_text(json.dumps(rows, indent=1) + "\n")
    partial.replace(results)


def _answer(path: Path, entry: Entry) -> NoReturn:
    """Run one entry in the child process. Exits without cleanup, which may hang after a GPU fault."""
    status, detail = answer_for(entry)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps({"status": status, "detail": detail}))
    partial.replace(path)
    os._exit(0)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, help="the JSON file to write")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these entries alone")
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"processes side by side (default {WORKERS})")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.results is None and arguments.answer is None:
        parser.error("name the JSON file to write")
    return arguments


def main() -> int:
    """Run the requested entries."""
    arguments = _parsed()
    known = {entry.name: entry for entry in entries()}
    unknown = sorted(set(arguments.only or ()) - known.keys())
    if unknown:
        print(f"no such entry: {', '.join(unknown)}", file=sys.stderr)
        return 2
    wanted = [known[name] for name in arguments.only or known]
    if arguments.answer is not None:
        _answer(arguments.answer, wanted[0])
    outcomes = run_all(wanted, arguments.results, arguments.workers)
    against = [entry.name for entry in wanted if not agrees(entry, outcomes[entry.name])]
    print(f"{len(wanted)} entries, {len(against)} against what is expected: {', '.join(against) or 'none'}")
    return 1 if against else 0


if __name__ == "__main__":
    sys.exit(main())
