"""How long a grade takes from the command line, alone and by the ready judge, on one machine in one run.

    python -m benchmarks.speed.ready_speed [--device emulated --device cuda] [--solution relu/cuda_plain.py]
                                           [--repeat 5] [--answers 16] [--ready-only] [--json FILE]

Of each device: a grade of a shipped solution, in CUDA or Triton, with nothing built (cold), then with its build cached
(cached), then by `warpgrade serve`: the first grade of the problem there, further ones (ready), and one of a solution
that is not built yet (ready_not_built). `--ready-only` leaves out the first two kinds. Every grade is a process of its
own, from its start to its end.

Then a program hands in `--answers` equal answers together (`answers_s`: from handing in to the card). `import_s` is the
time of a process that imports what the command line needs to ask the ready judge, and nothing else: the least of many,
because other processes only add to it. `warpgrade doctor --prepare` makes the headers of the compilers beforehand.

Bytecode of the checkout is compiled first, as by every installation: without bytecode, a grade takes about 0.3 s of
CPU more.
"""

import argparse
import compileall
import contextlib
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

TOP = Path(__file__).resolve().parents[2]
_IMPORTS = (
    "import evaluator.commands.main, evaluator.commands.grading, evaluator.commands.ready, evaluator.files.card_files, "
    "evaluator.grading.resolved_request, evaluator.report.progress_line, evaluator.signatures.keys"
)
_IMPORT_TRIES = 15
_START_S = 120.0
_KERNEL_NAME = re.compile(r"(?:__global__ void|@triton\.jit\s+def) (\w+)\(")


class Machine(NamedTuple):
    """Solution and environment of all grades, and the folder of their files."""

    solution: Path
    environment: dict[str, str]
    folder: Path

    @property
    def problem(self) -> str:
        """The solution's problem."""
        return self.solution.parent.name

    def variant(self, name: str) -> Path:
        """Write the solution with another kernel name, so that nothing of it is built."""
        text = self.solution.read_text()
        found = _KERNEL_NAME.search(text)
        if found is None:
            raise RuntimeError(f"{self.solution}: no kernel in CUDA or Triton")
        kernel = found.group(1)
        path = self.folder / f"{name}.py"
        path.write_text(text.replace(kernel, f"{kernel}_{name}"))
        return path

    def run(self, *arguments: str) -> tuple[float, subprocess.CompletedProcess[str]]:
        """Run a command; return its wall time too. Raises RuntimeError if the command fails."""
        started_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(TOP / "cli.py"), *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return time.monotonic() - started_s, done

    def grade(self, device: str, submission: Path, *, ready: bool) -> float:
        """Return the wall time in seconds of one grade. Raises RuntimeError if another process graded."""
        arguments = ["grade", self.problem, str(submission), "--device", device, "--output", "card.json"]
        wall_s, done = self.run(*arguments, "--ready" if ready else "--no-ready")
        if ready != ("graded by the ready judge" in done.stderr):
            raise RuntimeError(f"another process graded: {done.stderr}")
        return wall_s


def main() -> int:
    """Measure, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", choices=["emulated", "cuda"])
    parser.add_argument("--solution", default="relu/cuda_plain.py", help="path below the folder of shipped solutions")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--answers", type=int, default=16)
    parser.add_argument("--ready-only", action="store_true", help="leave out cold and cached grades")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    compileall.compile_dir(str(TOP / "evaluator"), quiet=1)
    result: dict[str, Any] = {"solution": options.solution, "machine": machine_facts(), "import_s": import_s()}
    result["devices"] = {}
    for device in options.device or ["emulated", "cuda"]:
        with tempfile.TemporaryDirectory(prefix="ready-speed-") as folder:
            place = Path(folder)
            place.chmod(0o711)  # A runner's own user must pass through to the cache.
            found: dict[str, Any] = {}
            result["devices"][device] = found
            for times_s in measured(device, place, options):
                found |= times_s
                if options.json is not None:  # A stopped benchmark keeps its figures.
                    options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


def machine_facts() -> dict[str, Any]:
    """Return what the times depend on."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": platform.processor() or platform.machine(),
        "load_1_minute": os.getloadavg()[0],
    }


def import_s() -> dict[str, float]:
    """Return the time of a process that imports what the command line needs to ask the ready judge."""
    found = [timed([sys.executable, "-c", _IMPORTS]) for _ in range(_IMPORT_TRIES)]
    walls_s, cpu_s = zip(*found, strict=True)
    return {"least": min(walls_s), "median": statistics.median(walls_s), "least_cpu": min(cpu_s)}


def timed(command: list[str]) -> tuple[float, float]:
    """Return the wall time and the CPU time of a command, in seconds."""
    before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=TOP, check=True)
    wall_s, after = time.monotonic() - started_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(device: str, folder: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the times of a device in seconds, one kind after the other."""
    repeat = options.repeat
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WARPGRADE")}
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    environment |= {"WARPGRADE_CACHE": str(folder / "cache"), "XDG_RUNTIME_DIR": str(runtime)}
    machine = Machine(TOP / "solutions" / options.solution, environment, folder)
    yield {"prepare_s": machine.run("doctor", "--prepare")[0]}
    warm_up = machine.variant("warm_up")  # The emulator's own libraries are built with the first CUDA submission.
    yield {"first_on_this_machine_s": machine.grade(device, warm_up, ready=False)}
    if not options.ready_only:
        cold = [machine.grade(device, machine.variant(f"cold_{n}"), ready=False) for n in range(2)]
        yield _repeated("cold", cold)
        cached = [machine.grade(device, machine.solution, ready=False) for _ in range(repeat + 1)][1:]
        yield _repeated("cached", cached)
    with served(device, machine):
        yield {"ready_first_s": machine.grade(device, machine.solution, ready=True)}
        yield _repeated("ready", [machine.grade(device, machine.solution, ready=True) for _ in range(repeat)])
        new = [machine.grade(device, machine.variant(f"ready_{n}"), ready=True) for n in range(2)]
        yield _repeated("ready_not_built", new)
        yield {"answers_s": answered(device, machine, options.answers)}
        _, done = machine.run("serve", "--status")
        yield {"status": json.loads(done.stdout)}
    yield {"load_1_minute": os.getloadavg()[0]}


def _repeated(name: str, times_s: list[float]) -> dict[str, Any]:
    return {f"{name}_s": {"all": times_s, "median": statistics.median(times_s), "least": min(times_s)}}


@contextlib.contextmanager
def served(device: str, machine: Machine) -> Iterator[None]:
    """Run the ready judge; wait until its first worker is ready."""
    command = [sys.executable, str(TOP / "cli.py"), "serve", "--device", device]
    with subprocess.Popen(command, cwd=machine.folder, env=machine.environment) as server:
        try:
            until_s = time.monotonic() + _START_S
            while not is_prepared(machine):
                if time.monotonic() > until_s or server.poll() is not None:
                    raise RuntimeError("the ready judge did not start")
                time.sleep(0.2)
            yield
        finally:
            server.terminate()


def is_prepared(machine: Machine) -> bool:
    """Return whether the server has a worker, and prepares no other."""
    try:
        _, done = machine.run("serve", "--status")
    except RuntimeError:
        return False
    workers = json.loads(done.stdout)["workers"]
    return bool(workers) and not any(each["busy"] for each in workers)


def answered(device: str, machine: Machine, count: int) -> dict[str, float]:
    """Hand in answers together by the library; return the times from handing in to the card."""
    code = (
        "import json, sys, time\n"
        "from warpgrade import Grader\n"
        "source = open(sys.argv[1]).read()\n"
        "with Grader(device=sys.argv[2], ready=True) as grader:\n"
        "    started_s, times_s = time.monotonic(), []\n"
        "    futures = [grader.submit(sys.argv[4], source) for _ in range(int(sys.argv[3]))]\n"
        "    for future in futures:\n"
        "        future.add_done_callback(lambda _: times_s.append(time.monotonic() - started_s))\n"
        "    assert all(future.result().status == 'correct' for future in futures)\n"
        "    time.sleep(0.1)\n"
        "print(json.dumps(sorted(times_s)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(machine.solution), device, str(count), machine.problem],
        cwd=TOP,
        env=machine.environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    times_s = json.loads(done.stdout)
    if len(times_s) != count:
        raise RuntimeError(f"{len(times_s)} of {count} answers have a card")
    return {
        "answers": count,
        "median": statistics.median(times_s),
        "p95": times_s[-1 - count // 20],
        "last": times_s[-1],
    }


if __name__ == "__main__":
    sys.exit(main())
