"""How long a grade on a GPU takes, command to verdict, against a naive grader on the same machine.

    python benchmarks/grade_speed.py PROBLEM=SUBMISSION ... [--repeat 3] [--naive-repeat 1] [--json FILE]

Each submission is graded cold (headers and starter prepared, nothing of the submission's cached), then again with its
build cached, `--repeat` times each; then by the naive grader of tests/naive.py: PyTorch's own load_inline into an empty
folder, inputs drawn on the CPU, 5 trials, 3 + 100 timed calls. Every grade is a process of its own, from its start to
its end. The submissions run without any walls in the naive grader: use your own, on a machine that you can lose.
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
from typing import Any

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP))

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
    options = parser.parse_args()
    pairs = [(name, Path(path).resolve()) for name, _, path in (target.partition("=") for target in options.targets)]
    if options.naive:
        return be_naive(*pairs[0])
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        prepare_s = prepare(cache, Path(folder), sorted({problem for problem, _ in pairs}))
        print(f"prepared in {prepare_s:.1f} s", flush=True)
        for problem, path in pairs:
            row = ours(problem, path, cache, Path(folder), options.repeat)
            rows.append(row | naive(problem, path, Path(folder), options.naive_repeat))
            show(rows[-1])
            if options.json is not None:
                options.json.write_text(json.dumps({"prepare_s": prepare_s, "rows": rows}, indent=1))
    return 0


def prepare(cache: Path, folder: Path, problems: list[str]) -> float:
    """Make all that does not depend on a submission, and grade each reference once: then all of ours is built.

    What is measured of a problem on this GPU is kept then too.
    """
    started = time.monotonic()
    command(["doctor", "--prepare"], cache)
    warm_up = folder / "warm_up.py"
    warm_up.write_text(WARM_UP)
    for problem in problems:
        command(["grade", problem, str(warm_up), "--device", "cuda", "--output", str(folder / "warm_up.json")], cache)
    return time.monotonic() - started


def command(arguments: list[str], cache: Path) -> tuple[float, int]:
    """Run the command-line tool; give its seconds and its exit code."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        cwd=TOP,
        env=os.environ | {"WARPGRADE_CACHE": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return time.monotonic() - started, done.returncode


def ours(problem: str, path: Path, cache: Path, folder: Path, repeat: int) -> dict[str, Any]:
    """Grade cold and cached."""
    row: dict[str, Any] = {"problem": problem, "submission": path.name, "cold_s": [], "cached_s": []}
    card = folder / "card.json"
    grade = ["grade", problem, str(path), "--device", "cuda", "--quiet", "--output", str(card)]
    for _ in range(repeat):
        before = set(cache.rglob("*"))
        row["cold_s"].append(command(grade, cache)[0])
        told = whole(card)
        row["status"] = told["status"]
        row["cold_stages_s"] = told["stages_s"]
        row["build_s"] = [round(unit["wall_s"], 2) for unit in (told.get("build") or {}).get("units", [])]
        for entry in sorted(set(cache.rglob("*")) - before, reverse=True):
            entry.rmdir() if entry.is_dir() else entry.unlink()
    command(grade, cache)
    for _ in range(repeat):
        row["cached_s"].append(command(grade, cache)[0])
        row["cached_stages_s"] = whole(card)["stages_s"]
    return row


def whole(card: Path) -> dict[str, Any]:
    """Read the card of a grade that came to a verdict: how soon one fails for want of a machine is no speed."""
    told: dict[str, Any] = json.loads(card.read_text())
    if told["status"] == "infra_error":
        raise SystemExit(f"{told['submission']['name']}: {told['reason']['message']}")
    return told


def naive(problem: str, path: Path, folder: Path, repeat: int) -> dict[str, Any]:
    """Grade naively, each time with an empty folder for what is compiled."""
    seconds: list[float] = []
    said: Any = None
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(dir=folder) as built:
            started = time.monotonic()
            try:
                done = subprocess.run(
                    [sys.executable, __file__, "--naive", f"{problem}={path}"],
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
    from evaluator.submissions import Submission, read_submission
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
    parts = [f"{row['submission'][:24]:24} {row['problem']:20} {row['status']:14} built in {row['build_s']} s"]
    for name in ("cold_s", "cached_s", "naive_s"):
        values = row[name]
        if values:
            parts.append(f"{name} {statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})")
    if row["naive_s"]:
        parts.append(f"{statistics.median(row['naive_s']) / statistics.median(row['cold_s']):.1f} x")
    print("  ".join(parts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
