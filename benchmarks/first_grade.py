"""How much longer a problem's first grade takes than a later one, with shipped decisions and without them.

    python benchmarks/first_grade.py NAME ... --problems DIR [--device cpu] [--size small] [--json FILE]

Each problem is graded twice against itself, with a cache that knows other problems alone: Warpgrade's own libraries are
built. Then the same is done without the shipped table of decisions. The sides take turns, problem by problem. Each
grade is a process of its own. CPU seconds are those of all its processes.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

TOP = Path(__file__).resolve().parents[1]
ITSELF = "from model import Model as ModelNew\n"
SIDES = ("shipped", "without")
COMMAND = """\
import sys
from pathlib import Path
from evaluator.catalog import stored_locks
from evaluator.commands.main import run
if sys.argv.pop(1) == "without":
    stored_locks.SHIPPED_FILE = Path("/nonexistent")
sys.exit(run(sys.argv[1:]))
"""


class Grade(NamedTuple):
    """One grade: seconds of the command, of its CPU time, and of the stage that sets the problem up."""

    wall_s: float
    cpu_s: float
    set_up_s: float


def main() -> int:
    """Grade what the command line names, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--problems", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", default="small")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "itself.py").write_text(ITSELF)
        grade(folder, folder / "prepared", "shipped", ["relu", "--device", options.device])
        print(f"{'problem':<44} {'side':<8} {'grade':<7} {'wall':>7} {'CPU':>7} {'set up':>7}  s", flush=True)
        for number, problem in enumerate(options.names):
            for side in SIDES if number % 2 == 0 else reversed(SIDES):
                cache = folder / f"{number}-{side}"
                shutil.copytree(folder / "prepared", cache)
                where = ["--problems", str(options.problems), "--device", options.device, "--size", options.size]
                for which in ("first", "later"):
                    found = grade(folder, cache, side, [problem, *where])
                    rows.append({"problem": problem, "side": side, "grade": which, **found._asdict()})
                    times = " ".join(f"{each:7.2f}" for each in found)
                    print(f"{problem:<44} {side:<8} {which:<7} {times}", flush=True)
    for side in SIDES:
        show(side, [row for row in rows if row["side"] == side])
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0


def grade(folder: Path, cache: Path, side: str, arguments: list[str]) -> Grade:
    """Grade the problem against itself in a new process."""
    problem, *options = arguments
    card = folder / "card.json"
    command = [sys.executable, "-c", COMMAND, side, "grade", problem, str(folder / "itself.py"), *options]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [*command, "--no-ready", "--output", str(card)],
        env=os.environ | {"WARPGRADE_CACHE": str(cache), "PYTHONPATH": str(TOP)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=True,
    )
    wall_s, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    stages = json.loads(card.read_bytes())["stages_s"]
    return Grade(wall_s, cpu_s, sum(stages.get(name, 0.0) for name in ("prepare", "device")))


def show(side: str, rows: list[dict[str, Any]]) -> None:
    """Print what a first grade takes beyond a later one, on average."""
    first, later = ([row for row in rows if row["grade"] == which] for which in ("first", "later"))
    pairs = list(zip(first, later, strict=True))
    wall_s, cpu_s, set_up_s = (sum(one[key] - two[key] for one, two in pairs) / len(pairs) for key in Grade._fields)
    print(f"{side}: a first grade takes {wall_s:.2f} s longer, {cpu_s:.2f} s of CPU, {set_up_s:.2f} s of setting up")


if __name__ == "__main__":
    sys.exit(main())
