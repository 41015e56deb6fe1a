"""How many submissions a minute a batch grades: with nothing built, with all of it built, and against a naive grader.

    python -m benchmarks.batch.batch_speed speed.json                    on a machine with a GPU: some six minutes
    python -m benchmarks.batch.batch_speed speed.json --device emulated --limit 16

The submissions are those of `speed_corpus`: 64, right and wrong, not compiling, crashing and hanging. What is made once
for a machine (`warpgrade doctor --prepare`) is made first, and timed apart. The naive grader (tests/naive.py) takes six
of them as PyTorch would: its own `load_inline`, five comparisons, a hundred timed calls, one process for each, all six
at once, so its rate is that of its mean time, one after the other. The results are written after each card.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.batch import speed_corpus
from benchmarks.batch.speed_corpus import Made
from evaluator.files.card_files import read_card
from evaluator.records import Scorecard, Status

TOP = Path(__file__).parents[2]
_CLI = [sys.executable, str(TOP / "cli.py")]
_GPU_STAGES = ("reference", "check", "time", "roofline")
_WRITE_S = 2.0
_MINUTE_S = 60.0
NAIVE = 6


class Limits(NamedTuple):
    """How long each phase may take, in s; what is not done then is left."""

    prepare: float = 120.0
    cold: float = 180.0
    cached: float = 110.0
    naive: float = 110.0


class Place(NamedTuple):
    """Where everything lies."""

    folder: Path
    results: Path

    @property
    def problems(self) -> Path:
        """The problems."""
        return self.folder / "problems"

    @property
    def submissions(self) -> Path:
        """The submissions, by problem."""
        return self.folder / "submissions"

    @property
    def environment(self) -> dict[str, str]:
        """A cache of our own."""
        return {**os.environ, "WARPGRADE_CACHE": str(self.folder / "cache")}


def main() -> int:
    """Run all phases; exit status 1 where a verdict is not the expected one."""
    arguments = _parsed()
    found: dict[str, Any] = {
        "device": arguments.device,
        "host": {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "phases": {},
    }
    with tempfile.TemporaryDirectory(prefix="batch-speed-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        place = Place(Path(folder), arguments.results)
        made = _hand_in(place, arguments.limit)
        found["submissions"] = dict(Counter(each.expected.value for each in made))
        _prepare(place, found)
        for phase in ("cold", "cached"):
            _batch(phase, place, made, arguments, found)
            print(_said(phase, found), flush=True)
        if arguments.naive and arguments.device == "cuda":
            _naive(place, made, arguments.naive, found)
            print(json.dumps(found["phases"]["naive"]), flush=True)
    return 1 if any(found["phases"][phase]["unexpected"] for phase in ("cold", "cached")) else 0


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", help="the JSON file to write")
    parser.add_argument("--device", choices=["cuda", "emulated"], default="cuda")
    parser.add_argument("--limit", type=int, help="take so many of the submissions, spread over all of them")
    parser.add_argument("--timeout", type=float, help="passed on to the batch; its own default otherwise")
    parser.add_argument("--jobs", type=int, help="passed on to the batch")
    parser.add_argument("--naive", type=int, default=NAIVE, help="how many the naive grader takes; 0 leaves it out")
    parser.add_argument("--naively", nargs=2, type=Path, metavar=("REFERENCE", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.naively:
        sys.exit(_grade_naively(*arguments.naively))
    if arguments.results is None:
        parser.error("name the JSON file to write")
    return arguments


def _hand_in(place: Place, limit: int | None) -> list[Made]:
    made = list(speed_corpus.submissions())
    if limit is not None:
        limit = min(limit, len(made))
        step = len(made) // limit
        made = [made[number * step + number % step] for number in range(limit)]  # another way to answer each time
    speed_corpus.problems(place.problems)
    for each in made:
        path = place.submissions / each.problem / f"{each.name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(each.source)
    return made


def _prepare(place: Place, found: dict[str, Any]) -> None:
    began_s = time.monotonic()
    command = [*_CLI, "doctor", "--prepare", "--json"]
    try:
        done = subprocess.run(
            command, env=place.environment, capture_output=True, text=True, timeout=Limits().prepare, check=False
        )
        parts = json.loads(done.stdout)["parts"] if done.stdout else done.stderr
    except subprocess.TimeoutExpired:
        parts = "not done in time"
    found["phases"]["prepare"] = {"wall_s": round(time.monotonic() - began_s, 1), "parts": parts}
    _write(place, found)


def _batch(phase: str, place: Place, made: list[Made], arguments: argparse.Namespace, found: dict[str, Any]) -> None:
    """Run one batch, and note when each card came."""
    run = place.folder / phase
    command = [*_CLI, "batch", str(place.submissions), "--run", str(run), "--problems", str(place.problems)]
    command += ["--device", arguments.device, "--jsonl"]
    for option in ("timeout", "jobs"):
        if getattr(arguments, option) is not None:
            command += [f"--{option}", f"{getattr(arguments, option):g}"]
    began_s = time.monotonic()
    came_s: list[float] = []
    process = subprocess.Popen(
        command, env=place.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said: list[str] = []
    threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True).start()
    limit = threading.Timer(getattr(Limits(), phase), process.send_signal, [signal.SIGINT])
    limit.start()
    written_s = 0.0
    for line in process.stdout or ():
        if json.loads(line)["type"] == "result":
            came_s.append(time.monotonic() - began_s)
        if time.monotonic() - written_s > _WRITE_S:
            found["phases"][phase] = {"cards": len(came_s), "came_s": [round(each, 2) for each in came_s]}
            _write(place, found)
            written_s = time.monotonic()
    process.wait()
    limit.cancel()
    cards = [read_card(path) for path in sorted(run.glob("cards/*/*.json"))]
    found["phases"][phase] = _summary(cards, made, came_s) | {"exit": process.returncode, "said": said[-3:]}
    logs = "".join(path.read_text(errors="replace") for path in sorted(run.glob("logs/worker-*.log")))
    found["phases"][phase]["workers_said"] = logs[-4000:]
    _write(place, found)


def _summary(cards: list[Scorecard], made: list[Made], came_s: list[float]) -> dict[str, Any]:
    expected = {(each.problem, each.name): each.expected for each in made}
    unexpected = [
        f"{card.problem.name}/{card.submission.name}: {card.status.value}"
        f" ({card.reason.code if card.reason else ''} {card.reason.message if card.reason else ''})"[:300]
        for card in cards
        if card.status is not expected[card.problem.name, card.submission.name]
    ]
    stages: dict[str, list[float]] = {}
    for card in cards:
        for stage, seconds in card.stages_s.items():
            stages.setdefault(stage, []).append(seconds)
    wall_s = came_s[-1] if came_s else 0.0
    right = [card for card in cards if card.status is Status.CORRECT]
    return {
        "cards": len(cards),
        "wall_s": round(wall_s, 1),
        "per_minute": round(len(came_s) / wall_s * _MINUTE_S, 1) if wall_s else None,
        "per_minute_from_the_first": round((len(came_s) - 1) / (wall_s - came_s[0]) * _MINUTE_S, 1)
        if len(came_s) > 1
        else None,
        "first_s": round(came_s[0], 1) if came_s else None,
        "came_s": [round(each, 2) for each in came_s],
        "statuses": dict(Counter(card.status.value for card in cards)),
        "unexpected": unexpected,
        "stages": {
            stage: {"sum_s": round(sum(each), 1), "median_s": round(statistics.median(each), 3), "count": len(each)}
            for stage, each in stages.items()
        },
        "device_s_by_status": {
            status: round(
                sum(
                    card.stages_s.get(stage, 0.0)
                    for card in cards
                    for stage in _GPU_STAGES
                    if card.status.value == status
                ),
                1,
            )
            for status in sorted({card.status.value for card in cards})
        },
        "built": sum(not unit.cached for card in cards if card.build for unit in card.build.units),
        "speedups": [card.timing.speedup for card in right if card.timing],
        "medians_ms": [round(card.timing.submission_median_ms, 4) for card in right if card.timing],
        "findings": dict(Counter(finding.code for card in cards for finding in card.findings)),
    }


def _naive(place: Place, made: list[Made], count: int, found: dict[str, Any]) -> None:
    """Have the naive grader take the first right ones of as many problems, each in a process of its own."""
    chosen = {each.problem: each for each in reversed(made) if each.expected is Status.CORRECT}
    running = []
    for number, each in enumerate(list(chosen.values())[:count]):
        own = place.folder / f"naive-{number}"
        own.mkdir()
        reference = place.problems / each.problem / "reference.py"
        submission = place.submissions / each.problem / f"{each.name}.py"
        command = [sys.executable, "-m", "benchmarks.batch.batch_speed", "--naively", str(reference), str(submission)]
        environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(own)}
        process = subprocess.Popen(
            command, cwd=TOP, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        running.append((f"{each.problem}/{each.name}", process))
    until_s = time.monotonic() + Limits().naive
    results = {}
    for name, process in running:
        try:
            said, _ = process.communicate(timeout=max(1.0, until_s - time.monotonic()))
            last = said.strip().splitlines()[-1:] or ["nothing"]
            results[name] = json.loads(last[0]) if process.returncode == 0 else {"failed": last[0][:300]}
        except subprocess.TimeoutExpired:
            process.kill()
            results[name] = {"failed": "not done in time"}
    walls_s = [each["wall_s"] for each in results.values() if "wall_s" in each]
    mean_s = statistics.mean(walls_s) if walls_s else None
    found["phases"]["naive"] = {
        "each": results,
        "mean_s": mean_s,
        "per_minute": round(_MINUTE_S / mean_s, 2) if mean_s else None,
    }
    _write(place, found)


def _grade_naively(reference: Path, submission: Path) -> int:
    """Be a naive grader: one process, `allclose`, CUDA events."""
    began_s = time.monotonic()
    import torch

    from tests.naive import called, submission_class

    space: dict[str, Any] = {}
    exec(compile(reference.read_text(), str(reference), "exec"), space)
    imported_s = time.monotonic() - began_s
    candidate = submission_class(submission)().cuda()
    built_s = time.monotonic() - began_s
    model = space["Model"]().cuda()
    right = True
    inputs = []
    for _ in range(5):
        inputs = [value.cuda() for value in space["get_inputs"]()]
        with torch.no_grad():
            right &= torch.allclose(called(candidate, inputs), called(model, inputs), rtol=1e-4, atol=1e-4)
    checked_s = time.monotonic() - began_s
    medians_ms = []
    for side in (model, candidate):
        times_ms = []
        for _ in range(100):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            with torch.no_grad():
                start.record()
                side(*inputs)
                end.record()
            torch.cuda.synchronize()
            times_ms.append(start.elapsed_time(end))
        medians_ms.append(statistics.median(times_ms))
    seconds = {
        "import_s": imported_s,
        "build_s": built_s - imported_s,
        "check_s": checked_s - built_s,
        "wall_s": time.monotonic() - began_s,
    }
    print(json.dumps({"right": right, "speedup": medians_ms[0] / medians_ms[1], **seconds}))
    return 0


def _said(phase: str, found: dict[str, Any]) -> str:
    found = found["phases"][phase]
    return (
        f"{phase}: {found['cards']} cards in {found['wall_s']} s, {found['per_minute']} a minute; "
        f"{len(found['unexpected'])} unexpected; {found['stages']}"
    )


def _write(place: Place, found: dict[str, Any]) -> None:
    partial = place.results.with_suffix(".partial")
    partial.write_text(json.dumps(found, indent=1) + "\n")
    shutil.move(partial, place.results)


if __name__ == "__main__":
    sys.exit(main())
