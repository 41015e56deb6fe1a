"""Grade honest submissions repeatedly: every shipped solution, and those of tests/honest and tests/holes.

    python -m benchmarks.verdicts.false_alarms --device emulated [--rounds 20] [--only NAME ...] [--folder FOLDER]
        [--output FILE.json]

Each is graded `--rounds` times, with other seeds each time, by one batch. Every other verdict than `correct` is a false
alarm, and the exit status is 1. Solutions in CUDA are graded on `emulated` and `cuda`, those in C++ on `cpu`.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from evaluator.files.card_files import read_card
from evaluator.records import Status

TOP = Path(__file__).resolve().parents[2]
HOLES = TOP / "tests" / "holes"
"""Honest answers, on the CPU, to problems whose wrong answers once passed: half of them are in half precision."""

_CLI = [sys.executable, str(TOP / "cli.py")]
_PREFIX = {"cpu": "cpp_", "emulated": "cuda_", "cuda": "cuda_"}


class Honest(NamedTuple):
    """A submission that is right."""

    problem: str
    path: Path


def submissions(device: str) -> Iterator[Honest]:
    """List what is honest on `device`."""
    for path in sorted((TOP / "solutions").glob(f"*/{_PREFIX[device]}*.py")):
        yield Honest(path.parent.name, path)
    # What runs on the emulator runs on a GPU.
    for folder in {"cuda": ("emulated", "cuda")}.get(device, (device,)):
        for path in sorted((TOP / "tests" / "honest" / folder).glob("*/*.py")):
            yield Honest(path.parent.name, path)
    if device == "cpu":
        for path in sorted((HOLES / "honest").glob("*.py")):
            yield Honest(path.read_text().partition("# problem: ")[2].partition("\n")[0], path)


def problems(folder: Path) -> None:
    """Put the shipped problems and those of the tests into one folder."""
    folders = (TOP / "problems", TOP / "tests" / "honest" / "problems", HOLES / "problems")
    for each in (path for listed in folders for path in listed.iterdir()):
        if each.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(each, folder / each.name, ignore=ignored, dirs_exist_ok=True)


def main() -> int:
    """Grade, and say what was not correct."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=sorted(_PREFIX), default="emulated")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="file names without .py, or PROBLEM/NAME")
    parser.add_argument("--jobs", type=int, help="how many at once; the batch's own choice otherwise")
    parser.add_argument("--folder", type=Path, help="where the batch stays; a repeated command continues it")
    parser.add_argument("--output", type=Path, help="the JSON file to write")
    options = parser.parse_args()
    honest = [
        each
        for each in submissions(options.device)
        if options.only is None or {each.path.stem, f"{each.problem}/{each.path.stem}"} & set(options.only)
    ]
    named = {each.path.stem for each in honest} | {f"{each.problem}/{each.path.stem}" for each in honest}
    if unknown := set(options.only or ()) - named:
        parser.error(f"no submission is named {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        listed, run, known = (folder / name for name in ("honest.jsonl", "run", "problems"))
        problems(known)
        with listed.open("w", encoding="utf-8") as lines:
            # One after the other of a problem: what a batch has of it, it keeps.
            for each in honest:
                for number in range(options.rounds):
                    # Equal ones would be graded once.
                    source = f"{each.path.read_text()}\n# round {number}\n"
                    name = f"{each.path.stem}_{number}"
                    lines.write(json.dumps({"problem": each.problem, "sample": name, "source": source}) + "\n")
        command = [*_CLI, "batch", str(listed), "--run", str(run), "--problems", str(known), "--device", options.device]
        command += ["--jobs", str(options.jobs)] if options.jobs else []
        subprocess.run(command, check=False)
        found = results(honest, run)
    alarms = [alarm for row in found for alarm in row["alarms"]]
    for row in found:
        print(f"{row['problem']:22} {row['name']:32} {row['grades']:3} grades, {len(row['alarms'])} not correct")
    for alarm in alarms:
        print(alarm)
    print(f"{options.device}: {sum(row['grades'] for row in found)} grades of {len(found)}, {len(alarms)} not correct")
    if options.output is not None:
        options.output.write_text(json.dumps({"device": options.device, "rows": found}, indent=1))
    complete = all(row["grades"] == options.rounds for row in found)
    return 0 if complete and not alarms else 1


def results(honest: list[Honest], run: Path) -> list[dict[str, Any]]:
    """Read the cards of a run."""
    cards = [read_card(path) for path in sorted((run / "cards").rglob("*.json"))]
    rows = []
    for each in honest:
        own = [card for card in cards if card.submission.name.rpartition("_")[0] == each.path.stem]
        own = [card for card in own if card.problem.name == each.problem]
        alarms = [
            f"{each.problem}/{card.submission.name}: {card.status.value} {card.reason and card.reason.message}"[:300]
            for card in own
            if card.status is not Status.CORRECT
        ]
        findings = Counter(finding.code for card in own for finding in card.findings)
        rows.append(
            {
                "problem": each.problem,
                "name": each.path.stem,
                "grades": len(own),
                "alarms": alarms,
                "findings": dict(findings),
            }
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
