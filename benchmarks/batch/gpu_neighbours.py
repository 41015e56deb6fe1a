"""What hostile submissions cost their neighbours in a batch: verdicts, attempts and times with and without them.

    python -m benchmarks.batch.gpu_neighbours FOLDER                       on a machine with a GPU
    python -m benchmarks.batch.gpu_neighbours FOLDER --device cpu          the kinds that need no GPU

Two batches grade the same victims: the reference itself, whose speedup is 1, and a wrong answer. The second batch has
hostile submissions between them, of the same problems: they take all memory, leave kernels, threads and processes
running, hang, or break their context. Any verdict on a hostile submission is fine, except that the machine failed.

Exit status 1 if a victim's verdict is not the expected one in either batch, a hostile submission is `infra_error`, a
process stays on the GPU, or an interval of a victim's speedup excludes 1 by more than `--margin` beside neighbours and
not without. Printed are the attempts, and the ratio of each victim's times with neighbours to those without.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.batch import speed_corpus
from evaluator.devices.gpu import choose, state
from evaluator.files.card_files import read_card
from evaluator.records import Scorecard, Status

TOP = Path(__file__).parents[2]
_LIMIT_S = 900.0
_ATTEMPTS = re.compile(r" graded (\S+)\.json \S+ [0-9.]+ s, attempt (\d+)$", re.MULTILINE)

_RIGHT = "from model import Model as ModelNew  # {number}\n"
_WRONG = """from model import Model
class ModelNew(Model):
    def forward(self, x):
        return super().forward(x) + 1.0  # {number}
"""
_HOSTILE = """import ctypes, os, threading, time
import torch
from model import Model
kept = []
class ModelNew(Model):  # {number}
    def forward(self, x):
        {body}
        return super().forward(x)
"""
EVERYWHERE = {
    "crashing": "os.abort()",
    "killing_itself": "os.kill(os.getpid(), 9)",
    "hanging": "time.sleep(600)",
    "leaving_a_thread": "kept or kept.append(threading.Thread(target=lambda: [super(ModelNew, self).forward(x.clone())"
    " for _ in iter(int, 1)], daemon=True).start())",
    "leaving_a_process": "os.fork() or [None for _ in iter(int, 1)]",
}
"""Statements of a forward, by name, that disturb neighbours on any device."""
ON_GPU = {
    "taking_all_memory": "kept.extend(torch.empty(1 << 28, dtype=torch.uint8, device='cuda') for _ in range(4096))",
    "taking_and_going_on": "exec('try:\\n while True: kept.append(torch.empty(1 << 28, dtype=torch.uint8,"
    ' device="cuda"))\\nexcept RuntimeError: pass\')',
    "endless_kernel": "torch.cuda._sleep(1 << 62)",
    "leaving_a_kernel": "kept or kept.append(torch.cuda.Stream()); exec('with torch.cuda.stream(kept[0]):"
    " torch.cuda._sleep(1 << 36)')",
    "breaking_its_context": "x.flatten()[torch.full((1,), 1 << 40, device='cuda')]",
}
"""The same on a GPU alone. A kernel that is left runs for about 35 s, longer than a grade."""


class Graded(NamedTuple):
    """Cards of a batch, and the number of attempts of each."""

    cards: dict[str, Scorecard]
    attempts: dict[str, int]


def hand_in(folder: Path, problems: list[str], kinds: dict[str, str], rights: int) -> dict[str, Status | None]:
    """Write the submissions; return the expected status of each, None for hostile ones."""
    expected: dict[str, Status | None] = {}
    for problem in problems:
        made: list[tuple[str, str, Status | None]] = [("right", _RIGHT, Status.CORRECT)] * rights
        made.append(("wrong", _WRONG, Status.WRONG_RESULT))
        hostile = [(name, _HOSTILE.replace("{body}", body), None) for name, body in kinds.items()]
        between = -(-len(hostile) // len(made))
        ordered = [each for place, victim in enumerate(made) for each in (*_part(hostile, place, between), victim)]
        for number, (name, source, status) in enumerate(ordered):
            path = folder / problem / f"{number:02}_{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source.replace("{number}", str(number)))
            expected[f"{problem}/{path.stem}"] = status
    return expected


def _part(
    hostile: list[tuple[str, str, Status | None]], place: int, between: int
) -> list[tuple[str, str, Status | None]]:
    return hostile[place * between : (place + 1) * between]


def batch(place: Path, problems: Path, cache: Path, device: str, size: str) -> Graded:
    """Grade a folder of submissions by the command line."""
    command = [sys.executable, str(TOP / "cli.py"), "batch", str(place / "submissions"), "--run", str(place / "run")]
    command += ["--problems", str(problems), "--device", device, "--size", size, "--timeout", "10"]
    environment = {**os.environ, "WARPGRADE_CACHE": str(cache)}
    with (place / "batch.txt").open("wb") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=_LIMIT_S, check=False)
    cards = place / "run/cards"
    return Graded(
        {f"{path.parent.name}/{path.stem}": read_card(path) for path in sorted(cards.glob("*/*.json"))},
        {name: int(count) for name, count in _ATTEMPTS.findall((place / "run/logs/batch.log").read_text())},
    )


def faults_of(expected: dict[str, Status | None], found: Graded) -> list[str]:
    """Return a message for each verdict that a neighbour changed, or for each victim without a card."""
    faults = []
    for name, status in expected.items():
        card = found.cards.get(name)
        if card is None:
            faults.append(f"{name} has no card")
        elif card.status is Status.INFRA_ERROR or status not in (None, card.status):
            reason = card.reason.message if card.reason is not None else ""
            faults.append(f"{name} is {card.status}, not {status or 'a verdict'}: {reason}"[:300])
    return faults


def excludes_one(card: Scorecard, margin: float) -> bool:
    """Return whether the interval of the speedup is farther from 1 than the margin."""
    if card.timing is None or card.timing.speedup_low is None or card.timing.speedup_high is None:
        return False
    return card.timing.speedup_low > 1 + margin or card.timing.speedup_high < 1 - margin


def _of(name: str) -> str:
    """Return the problem and the kind of a victim, equal in both batches."""
    problem, _, rest = name.partition("/")
    return f"{problem}/{rest.partition('_')[2]}"


def times_ms(found: Graded, expected: dict[str, Status | None]) -> dict[str, list[float]]:
    """Return the medians of correct victims, both sides, by problem."""
    medians: dict[str, list[float]] = {}
    for name, card in found.cards.items():
        if expected[name] is Status.CORRECT and card.timing is not None:
            for side, median_ms in (
                ("reference", card.timing.reference_median_ms),
                ("submission", card.timing.submission_median_ms),
            ):
                medians.setdefault(f"{_of(name)} {side}", []).append(median_ms)
    return medians


def main() -> int:
    """Run both batches and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a new folder for all that is made")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--size", choices=["full", "small", "awkward"])
    parser.add_argument("--problems", nargs="+", default=["silu", "tanh"])
    parser.add_argument("--rights", type=int, default=4, help="correct victims of each problem")
    parser.add_argument("--margin", type=float, default=0.02)
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    size = arguments.size or ("full" if on_gpu else "small")
    arguments.folder.mkdir(parents=True, mode=0o755)
    problems = arguments.folder / "problems"
    speed_corpus.problems(problems)
    kinds = EVERYWHERE | (ON_GPU if on_gpu else {})
    began_s = time.monotonic()
    batches, faults, wrong = {}, [], {}
    for name, hostile in (("without", {}), ("with", kinds)):
        place = arguments.folder / name
        expected = hand_in(place / "submissions", arguments.problems, hostile, arguments.rights)
        found = batch(place, problems, arguments.folder / "cache", arguments.device, size)
        batches[name] = (expected, found)
        faults += [f"{name} neighbours: {fault}" for fault in faults_of(expected, found)]
        victims = [each for each, status in expected.items() if status is Status.CORRECT and each in found.cards]
        wrong[name] = [each for each in victims if excludes_one(found.cards[each], arguments.margin)]
    if wrong["with"] and not wrong["without"]:
        faults.append(f"speedups of the reference over itself beside neighbours exclude 1: {wrong['with']}")
    if on_gpu and (left := state(choose(None)).processes):
        faults.append(f"processes are left on the GPU: {left}")
    without, beside = (times_ms(found, expected) for expected, found in (batches["without"], batches["with"]))
    story = {
        "device": arguments.device,
        "submissions": {name: len(expected) for name, (expected, _) in batches.items()},
        "several_attempts": {
            name: {each: count for each, count in found.attempts.items() if count > 1}
            for name, (_, found) in batches.items()
        },
        "hostile": {
            each: card.status.value
            for each, card in batches["with"][1].cards.items()
            if batches["with"][0][each] is None
        },
        "times_with_by_without": {
            side: round(statistics.median(beside[side]) / statistics.median(without[side]), 4)
            for side in without
            if side in beside
        },
        "excluding_one": wrong,
        "wall_s": round(time.monotonic() - began_s),
        "faults": faults,
    }
    (arguments.folder / "story.json").write_text(json.dumps(story, indent=1) + "\n")
    print(json.dumps(story, indent=1))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
