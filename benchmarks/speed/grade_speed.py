"""How long a grade on a GPU takes, command to verdict, against a naive grader on the same machine.

    python -m benchmarks.speed.grade_speed PROBLEM=SUBMISSION ... [--repeat 3] [--naive-repeat 1] [--json FILE]
                                           [--device cuda] [--against CHECKOUT]

Each submission is graded cold (headers and starter prepared, nothing of the submission's cached), then again with its
build cached, `--repeat` times each; then by the naive grader of tests/naive.py: PyTorch's own load_inline into an
empty folder, inputs drawn on the CPU, 5 trials, 3 + 100 timed calls. Every grade is a process of its own, from its
start to its end. With `--against` another checkout grades the same, in turns. The naive grader has no
sandbox: grade only your own submissions, on a machine that you can lose.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

TOP = Path(__file__).resolve().parents[2]
NAIVE_LIMIT_S = 400.0
WARM_UP = "from model import Model as ModelNew\n"


def main() -> int:
    """Grade what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", metavar="PROBLEM=SUBMISSION")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--naive-repeat", type=int, default=1)
    parser.add_argument("--naive", action="store_true", help="be the process of one naive grade")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT")
    options = parser.parse_args()
    pairs = [(name, Path(path).resolve()) for name, _, path in (target.partition("=") for target in options.targets)]
    if options.naive:
        return be_naive(*pairs[0])
    checkouts = [TOP] if options.against is None else [TOP, options.against.resolve()]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Place(options.device, Path(folder))
        prepare_s = sum(prepare(place, checkout, sorted({problem for problem, _ in pairs})) for checkout in checkouts)
        print(f"prepared in {prepare_s:.1f} s", flush=True)
        for problem, path in pairs:
            sides = in_turns(place, checkouts, problem, path, options.repeat)
            sides[0] |= naive(problem, path, place.folder, options.naive_repeat)
            rows += sides
            for side in sides:
                show(side)
            if options.json is not None:
                options.json.write_text(json.dumps({"prepare_s": prepare_s, "rows": rows}, indent=1))
    return 0


class Place(NamedTuple):
    """Where grades run, and where all that they leave behind lies."""

    device: str
    folder: Path

    @property
    def cache(self) -> Path:
        """A cache of our own."""
        return self.folder / "cache"


def prepare(place: Place, checkout: Path, problems: list[str]) -> float:
    """Make all that does not depend on a submission, and grade each reference once: then all of ours is built.

    What is measured of a problem on this device is kept then too.
    """
    started = time.monotonic()
    command(place, checkout, ["doctor", "--prepare"])
    warm_up = place.folder / "warm_up.py"
    warm_up.write_text(WARM_UP)
    for problem in problems:
        graded(place, checkout, problem, warm_up)
    return time.monotonic() - started


def in_turns(place: Place, checkouts: list[Path], problem: str, path: Path, repeat: int) -> list[dict[str, Any]]:
    """Grade cold and cached, by each checkout in turns: a row for each."""
    rows: list[dict[str, Any]] = [
        {"problem": problem, "submission": path.name, "against": checkout != TOP, "cold_s": [], "cached_s": []}
        | {"cold_stages_s": [], "cached_stages_s": [], "build_s": []}
        for checkout in checkouts
    ]
    sides = list(zip(checkouts, rows, strict=True))
    for _ in range(repeat):
        for checkout, row in sides:
            before = set(place.cache.rglob("*"))
            for how in ("cold", "cached"):
                seconds, told = graded(place, checkout, problem, path)
                row[f"{how}_s"].append(seconds)
                row[f"{how}_stages_s"].append(told["stages_s"])
                row["status"] = told["status"]
                if how == "cold":
                    row["build_s"] += [round(unit["wall_s"], 2) for unit in (told.get("build") or {}).get("units", [])]
            for entry in sorted(set(place.cache.rglob("*")) - before, reverse=True):
                entry.rmdir() if entry.is_dir() else entry.unlink()
        sides.reverse()
    return rows


def graded(place: Place, checkout: Path, problem: str, path: Path) -> tuple[float, dict[str, Any]]:
    """Grade once; give the seconds and the card, of a grade that came to a verdict.

    How soon one fails for want of a machine is no speed.
    """
    card = place.folder / "card.json"
    card.unlink(missing_ok=True)
    grade = ["grade", problem, str(path), "--device", place.device, "--quiet", "--output", str(card)]
    seconds = command(place, checkout, grade)
    if not card.exists():
        raise SystemExit(f"{problem}: {path.name} came to no card; see what `warpgrade {' '.join(grade)}` says")
    told: dict[str, Any] = json.loads(card.read_text())
    if told["status"] == "infra_error":
        raise SystemExit(f"{told['submission']['name']}: {told['reason']['message']}")
    return seconds, told


def command(place: Place, checkout: Path, arguments: list[str]) -> float:
    """Run the command-line tool of a checkout; give its seconds."""
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        cwd=checkout,
        env=os.environ | {"WARPGRADE_CACHE": str(place.cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return time.monotonic() - started


def naive(problem: str, path: Path, folder: Path, repeat: int) -> dict[str, Any]:
    """Grade naively, each time with an empty folder for what is compiled."""
    seconds: list[float] = []
    said: Any = None
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(dir=folder) as built:
            started = time.monotonic()
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "benchmarks.speed.grade_speed", "--naive", f"{problem}={path}"],
                    env=os.environ | {"TORCH_EXTENSIONS_DIR": built},
                    capture_output=True,
                    text=True,
                    timeout=NAIVE_LIMIT_S,
                    check=False,
                )
                said = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else done.stderr[-300:]
            except subprocess.TimeoutExpired:
                said = "no answer in time"
            seconds.append(time.monotonic() - started)
    return {"naive_s": seconds, "naive": said}


def be_naive(problem: str, path: Path) -> int:
    """Grade one submission naively, in this process."""
    from evaluator.catalog import find_problem
    from evaluator.records import SizeName
    from evaluator.submission.read import Submission, read_submission
    from tests.naive import gpu_grade

    submission = read_submission(path)
    if not isinstance(submission, Submission):
        raise SystemExit(submission.message)
    source = Path(os.environ["TORCH_EXTENSIONS_DIR"]) / "submission.py"
    source.write_text(submission.source)
    print(json.dumps(gpu_grade(find_problem(problem), source, SizeName.FULL)))
    return 0


def show(row: dict[str, Any]) -> None:
    """Print one submission's seconds."""
    side = "against" if row["against"] else ""
    parts = [f"{row['submission'][:24]:24} {row['problem']:20} {side:7} {row['status']:14} built in {row['build_s']} s"]
    seconds = {name: row[name] for name in ("cold_s", "cached_s", "naive_s") if row.get(name)}
    parts += [
        f"{name} {statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"
        for name, values in seconds.items()
    ]
    if row.get("naive_s"):
        parts.append(f"{statistics.median(row['naive_s']) / statistics.median(row['cold_s']):.1f} x")
    print("  ".join(parts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
