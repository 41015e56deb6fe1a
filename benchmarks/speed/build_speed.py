"""How long each way of building inline CUDA takes, which one builds a submission, and whether the results are right.

    python -m benchmarks.speed.build_speed speed FILE ... [--steps split light plain] [--repeat 3]
    python -m benchmarks.speed.build_speed corpus [--steps split light plain] [--only NAME ...]
    python -m benchmarks.speed.build_speed results [--steps split light plain] [--only NAME ...]

`speed` builds every extension of the files by each step, in turns, and prints the median of wall and CPU seconds.
`corpus` builds all of tests/corpus and the CUDA of solutions/ by the quickest of the steps that can. `results`, on a
GPU, runs the entries of tests/corpus on such builds, and marks what is not as expected. `plain` is what PyTorch's own
load_inline does. Compilers run without a sandbox here: their CPU seconds are counted, and the sources are our own.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from evaluator.compile.builder import RunTool
from evaluator.compile.cuda_steps import Attempt, CudaStep, steps
from evaluator.compile.precompiled import precompile
from evaluator.protocol.frames import BuildRequest
from evaluator.toolchain import nvcc
from tests.corpus.entries import entries
from tests.cuda_builds import ARCHITECTURE, local_tool, requests_of, stand_ins

TOP = Path(__file__).resolve().parents[2]

STEPS = ("split", "light", "plain")
TIMEOUT_S = 600.0


class Bench:
    """A prepared cache and a compiler."""

    def __init__(self, folder: Path, wanted: list[str]) -> None:
        """Make the shared headers in `folder`, where they are not there yet; take the `wanted` steps alone."""
        self.folder = folder
        self._wanted = wanted
        self.tool: RunTool = local_tool(stand_ins(folder / "stand-ins"))
        started = time.monotonic()
        self.ready = precompile(self.tool, folder) is not None
        self.prepare_s = time.monotonic() - started

    def ladder(self, request: BuildRequest) -> list[CudaStep]:
        """Give the steps that a build of `request` would take, as far as they are wanted."""
        return [step for step in steps(request, ARCHITECTURE, self.folder).steps if step.name in self._wanted]

    def requests(self, path: Path) -> list[BuildRequest]:
        """Read what a submission asks for."""
        with tempfile.TemporaryDirectory() as folder:
            return requests_of(path, Path(folder))[1]


def measured(trial_runner: Bench, step: CudaStep) -> tuple[Attempt, float, float]:
    """Build once; give wall and CPU seconds too."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    attempt = step.build(trial_runner.tool, TIMEOUT_S)
    wall_s, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return attempt, wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def speed(trial_runner: Bench, files: list[Path], repeat: int) -> list[dict[str, Any]]:
    """Build the extensions of each file by each step, in turns."""
    rows = []
    for path in files:
        for request in trial_runner.requests(path):
            there = {step.name: step for step in trial_runner.ladder(request)}
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in there}
            built = dict.fromkeys(there, False)
            for _ in range(repeat):
                for name, step in there.items():
                    attempt, wall_s, cpu_s = measured(trial_runner, step)
                    taken[name].append((wall_s, cpu_s))
                    built[name] = attempt.library is not None
            for name, seconds in taken.items():
                wall_s = [wall for wall, _ in seconds]
                row = {"extension": request.name, "step": name, "built": built[name], "wall_s": wall_s}
                row |= {"cpu_s": [cpu for _, cpu in seconds]}
                rows.append(row)
                spread = f"{min(wall_s):.2f} to {max(wall_s):.2f}"
                cpu = statistics.median(row["cpu_s"])
                print(
                    f"{request.name:34} {name:6} {'ok' if built[name] else 'FAILS':6}"
                    f"wall {statistics.median(wall_s):6.2f} s ({spread})  CPU {cpu:6.2f} s",
                    flush=True,
                )
    return rows


def corpus_files(folder: Path) -> dict[str, Path]:
    """Name every CUDA submission of our own; those that are a change of another are written into `folder`."""
    files = {entry.name: entry.submission(folder) for entry in entries()}
    return files | {f"{path.parent.name}/{path.stem}": path for path in sorted(TOP.glob("solutions/*/cuda*.py"))}


def by_which_step(trial_runner: Bench, request: BuildRequest) -> tuple[str, float, str]:
    """Climb the ladder; give the step that built, its seconds with those of all before it, and why others did not."""
    reasons = steps(request, ARCHITECTURE, trial_runner.folder).notes
    started = time.monotonic()
    for step in trial_runner.ladder(request):
        attempt = step.build(trial_runner.tool, TIMEOUT_S)
        if attempt.library is not None:
            return step.name, time.monotonic() - started, "; ".join(reasons)
        lines = [line for line in attempt.result.output.splitlines() if "error" in line]
        reasons = [*reasons, f"{step.name}: {attempt.why or ' '.join(lines[:1])}"[:200]]
    return "none", time.monotonic() - started, "; ".join(reasons)


def corpus(trial_runner: Bench, names: list[str], workers: int) -> list[dict[str, Any]]:
    """Build the named submissions; without names, every one."""

    def one(name: str, request: BuildRequest) -> dict[str, Any]:
        step, seconds, reasons = by_which_step(trial_runner, request)
        print(f"{name:36} {step:6} {seconds:6.1f} s  {reasons}", flush=True)
        return {"name": name, "extension": request.name, "step": step, "seconds": seconds, "reasons": reasons}

    files = corpus_files(trial_runner.folder)
    wanted = [(name, request) for name in names or files for request in trial_runner.requests(files[name])]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda pair: one(*pair), wanted))


def results(trial_runner: Bench, names: list[str], wanted: list[str], workers: int) -> dict[str, str]:
    """Run each entry of the corpus on the GPU, in a process of its own, with extensions that our steps built."""

    def one(name: str) -> str:
        command = [
            sys.executable,
            "-m",
            "benchmarks.speed.build_speed",
            "answer",
            name,
            "--cache",
            str(trial_runner.folder),
            "--steps",
            *wanted,
        ]
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
        lines = process.stdout.splitlines()
        said = [line[8:] for line in lines if line.startswith("answer: ")]
        taken = [line[6:] for line in lines if line.startswith("step: ")]
        return (
            f"{said[-1]} ({', '.join(taken)})"
            if said
            else f"died with {process.returncode}: {process.stderr.strip()[-200:]}"
        )

    expected = {entry.name: entry.expected.gpu for entry in entries()}
    answers: dict[str, str] = {}
    with ThreadPoolExecutor(workers) as pool:
        for name, text in zip(names, pool.map(one, names), strict=True):
            answers[name] = text
            mark = " " if expected[name] in ("undefined", text.split()[0]) else "!"
            print(f"{mark} {name:34} {text[:160]}", flush=True)
    return answers


def answer(trial_runner: Bench, name: str) -> None:
    """Be the process of one entry."""
    from torch.utils import cpp_extension

    from benchmarks.emulator import corpus_on_gpu
    from evaluator.runner import extensions

    entry = next(item for item in entries() if item.name == name)

    class Loader(extensions.ExtensionLoader):
        def _build(self, request: BuildRequest) -> Any:
            for step in trial_runner.ladder(request):
                attempt = step.build(trial_runner.tool, TIMEOUT_S)
                print(f"step: {step.name}")
                if attempt.library is not None:
                    path = Path(tempfile.mkdtemp(), f"{request.name}.so")
                    path.write_bytes(attempt.library)
                    return extensions._import_library(request.name, path)  # noqa: SLF001 - as the runner does
            raise RuntimeError(f"{corpus_on_gpu.BUILD_FAILED} {request.name}")

    loader = Loader(None, Path(tempfile.mkdtemp()))  # type: ignore[arg-type]
    cpp_extension.load_inline, cpp_extension.load = loader.load_inline, loader.load
    os.chdir(tempfile.mkdtemp())
    status, detail = corpus_on_gpu.answer_for(entry)
    print(f"answer: {status} {detail}", flush=True)
    os._exit(0)


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "corpus", "results", "answer"])
    parser.add_argument("targets", nargs="*", help="files for speed")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="entries of the corpus")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--cache", type=Path, help="where the shared headers are kept, if not for this run alone")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        trial_runner = Bench(options.cache or Path(own), options.steps)
        if options.what == "answer":
            answer(trial_runner, options.targets[0])
        print(
            f"{nvcc.nvcc().version}; "
            f"shared headers {'made' if trial_runner.ready else 'NOT made'} in {trial_runner.prepare_s:.1f} s"
        )
        found: Any
        match options.what:
            case "speed":
                found = speed(trial_runner, [Path(name) for name in options.targets], options.repeat)
            case "corpus":
                found = corpus(trial_runner, options.only or [], options.workers)
                counts = {step: sum(row["step"] == step for row in found) for step in (*STEPS, "none")}
                print(", ".join(f"{step}: {count}" for step, count in counts.items()))
            case _:
                names = options.only or [entry.name for entry in entries()]
                found = results(trial_runner, names, options.steps, options.workers)
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
