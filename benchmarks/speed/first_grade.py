"""How much longer a problem's first grade takes than a later one, with shipped decisions and without them.

    python -m benchmarks.speed.first_grade NAME ... --problems DIR [--device cpu] [--size small] [--json FILE]

Each problem is graded twice against itself, with a cache that knows other problems alone: Warpgrade's own libraries are
built. Then the same is done without the shipped table of decisions. The sides take turns, problem by problem. Each
grade is a process of its own; its seconds are those of the stages that set the problem up. Calls of the reference and
CPU seconds are counted in one more process, on the CPU, which does nothing else.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

TOP = Path(__file__).resolve().parents[2]
ITSELF = "from model import Model as ModelNew\n"
SIDES = ("shipped", "without")
WARM_UP = "relu"
NO_TABLE = Path("/nonexistent")
GRADE = """\
import sys
from pathlib import Path
from evaluator.catalog import stored_locks
from evaluator.commands.main import run
if sys.argv.pop(1) == "without":
    stored_locks.SHIPPED_FILE = Path("/nonexistent")
sys.exit(run(sys.argv[1:]))
"""


class SetUp(NamedTuple):
    """Setting up a problem: the judge's calls of the reference, and the CPU seconds."""

    calls: int
    cpu_s: float


class Grade(NamedTuple):
    """One grade: seconds of the command, and of the stages that set the problem up."""

    wall_s: float
    set_up_s: float


def main() -> int:
    """Measure what the command line names, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--problems", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", default="small")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--count", choices=SIDES, help="be the process that counts")
    options = parser.parse_args()
    if options.count is not None:
        count(options.names[0], options.problems, options.size, options.count)
        return 0
    rows: list[dict[str, Any]] = []
    where = ["--problems", str(options.problems), "--size", options.size]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "itself.py").write_text(ITSELF)
        graded(folder, folder / "prepared", "shipped", [WARM_UP, "--device", options.device])
        print(
            f"{'problem':<20} {'side':<8} {'grade':<6} {'calls':>5} {'CPU':>6} {'set up':>7} {'grade':>7}  s",
            flush=True,
        )
        for number, problem in enumerate(options.names):
            for side in SIDES if number % 2 == 0 else reversed(SIDES):
                cache = folder / f"{number}-{side}"
                shutil.copytree(folder / "prepared", cache)
                grades = [graded(folder, cache, side, [problem, *where, "--device", options.device]) for _ in range(2)]
                for which, one, counts in zip(("first", "later"), grades, counted(problem, where, side), strict=True):
                    rows.append({"problem": problem, "side": side, "grade": which, **one._asdict(), **counts._asdict()})
                    times = f"{counts.calls:>5} {counts.cpu_s:6.2f} {one.set_up_s:7.2f} {one.wall_s:7.2f}"
                    print(f"{problem:<20} {side:<8} {which:<6} {times}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0


def graded(folder: Path, cache: Path, side: str, arguments: list[str]) -> Grade:
    """Grade the problem against itself in a new process."""
    problem, *options = arguments
    card = folder / "card.json"
    command = [sys.executable, "-c", GRADE, side, "grade", problem, str(folder / "itself.py"), *options]
    started = time.monotonic()
    subprocess.run(
        [*command, "--no-ready", "--output", str(card)], env=environment(cache), capture_output=True, check=True
    )
    wall_s = time.monotonic() - started
    stages = json.loads(card.read_bytes())["stages_s"]
    return Grade(wall_s, sum(stages.get(name, 0.0) for name in ("prepare", "device")))


def counted(problem: str, where: list[str], side: str) -> list[SetUp]:
    """Return the first and the later set-up of a problem, from a new process with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "benchmarks.speed.first_grade", problem, *where, "--count", side]
        done = subprocess.run(command, env=environment(Path(cache)), capture_output=True, check=True)
    return [SetUp(*each) for each in json.loads(done.stdout)]


def environment(cache: Path) -> dict[str, str]:
    """Return the environment of a process: with this checkout, and a cache."""
    return os.environ | {"WARPGRADE_CACHE": str(cache), "PYTHONPATH": str(TOP), "OMP_WAIT_POLICY": "PASSIVE"}


def count(name: str, problems: Path, size: str, side: str) -> None:
    """Set a shipped problem up, to load code, then the named one twice; print calls and CPU seconds."""
    from types import SimpleNamespace
    from unittest.mock import patch

    from evaluator.catalog import find_problem, stored_locks
    from evaluator.grade_options import GradeOptions
    from evaluator.judge.setup.grade_terms import GradeTerms
    from evaluator.judge.setup.problem_setup import set_up_problem
    from evaluator.protocol import model_call
    from evaluator.records import DeviceKind, SizeName

    if side == "without":
        stored_locks.SHIPPED_FILE = NO_TABLE
    options = GradeOptions(DeviceKind.CPU, size=SizeName(size))
    found = []
    for problem in (find_problem(WARM_UP), *[find_problem(name, problems)] * 2):
        terms = GradeTerms(problem, options, None, os.cpu_count() or 1)
        with patch.object(model_call, "run", wraps=model_call.run) as calls:
            started = time.process_time()
            set_up_problem(terms, 1, SimpleNamespace(library=None))  # type: ignore[arg-type]
            found.append(SetUp(calls.call_count, time.process_time() - started))
    print(json.dumps(found[1:]))


if __name__ == "__main__":
    sys.exit(main())
