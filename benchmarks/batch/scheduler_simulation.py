"""How busy the scheduler of a batch keeps many GPUs: the real scheduler, with workers that only wait.

    python -m benchmarks.batch.scheduler_simulation [--gpus 8] [--cores 64] [--problems 64] [--samples 16] [--speed 8]

A worker of this simulation computes nothing: it waits for the times that stages took on an H200, divided by `--speed`.
Everything else is the product: the scheduler, the queue between builds and GPUs, the run folder, cards and timeline.
The figures come from the run's own timeline. `--shuffled` hands the submissions in in random order, not by problem.

- *busy*: share of the GPUs' time with a submission, from the first turn on a GPU until no built submission waits.
- *judging*: share of that time in checks and timings.
- *setups*: turns on a GPU whose problem is not the one before; a worker then sets up a problem anew.

Times in seconds, of the batch with an empty cache in docs/measured.md, and where they come from:

- start of a worker 10: its first card came after 23.6 s, of which the stages take 13.4.
- read 1.16, lint 0.11, build 6.92: medians of a builder. Build times scatter by a factor of two (seeded).
- device 3.5 for a worker's first grade of a problem: the sum of 28.2 over eight problems. Otherwise 0.006.
- read on the GPU's worker 0.2: of 77 s with everything built, 64 s are stages with the GPU, over 56 submissions.
- check 0.81, the mean. time 0.73 for correct submissions, the mean; of eight submissions four are correct, three wrong,
  and one does not compile.
"""

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.batch.runs.inputs import from_text
from evaluator.batch.runs.problems import Problems
from evaluator.batch.runs.refusals import Refusals
from evaluator.batch.runs.run_folder import PlanFile, RunFolder, manifest_for, opened
from evaluator.batch.runs.tasks import Task
from evaluator.batch.scheduler import CardResult, Scheduler
from evaluator.batch.timeline import WAITING
from evaluator.batch.workers.messages import (
    Built,
    GradeFinished,
    GradePart,
    NotGraded,
    PrepareWorker,
    StageEntered,
    WorkerOrder,
)
from evaluator.batch.workers.worker_handle import Slot
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import Begun
from evaluator.progress import Lap
from evaluator.records import DeviceFacts, DeviceKind, Outcome, Scorecard, SizeName
from tests import cards

START_S = 10.0
BUILDER_S = {"read": 1.16, "lint": 0.11, "build": 6.92}
GPU_READ_S = 0.2


class GpuTimes(NamedTuple):
    """Seconds of the stages of one grade on a GPU."""

    device: float
    check: float
    time: float


LATER = GpuTimes(device=0.006, check=0.81, time=0.73)
FIRST = LATER._replace(device=3.5)
OnStage = Callable[[StageEntered], None]
_BEGUN = Begun(outcome=Outcome(), lap=Lap("2026-01-01T00:00:00.000+00:00", {}, 0.0))
_CORRECT, _WRONG, _UNCOMPILED = cards.card(), cards.wrong_card(), cards.uncompiled_card()
_KINDS = ("right", "wrong", "right", "wrong", "right", "wrong", "right", "uncompiled")


class WaitingWorker:
    """Worker that waits for the measured times. The submission's first line says what comes of it."""

    speed = 1.0

    def __init__(self, _slot: Slot, _log: Path | None) -> None:
        """Wait for nothing yet."""
        self._started = False
        self._problem = ""

    def prepare(self, _: PrepareWorker) -> bool:
        """Wait for the start of a worker, once."""
        if not self._started:
            self._started = True
            self._wait(START_S)
        return True

    def grade(self, order: WorkerOrder, on_stage: OnStage) -> Built | GradeFinished | NotGraded:
        """Wait through the stages of the slot's part."""
        self.prepare(PrepareWorker(order.options))
        kind, factor = order.submission.source.split()[1:3]
        if order.part is GradePart.BEGIN:
            for stage, seconds in BUILDER_S.items():
                on_stage(StageEntered(stage, ""))
                self._wait(seconds * (float(factor) if stage == "build" else 1.0))
            return GradeFinished(_card(order, _UNCOMPILED)) if kind == "uncompiled" else Built(_BEGUN)
        times = LATER if self._problem == order.problem.sha256 else FIRST
        self._problem = order.problem.sha256
        stages = {"read": GPU_READ_S, "device": times.device, "check": times.check}
        for stage, seconds in (stages | ({"time": times.time} if kind == "right" else {})).items():
            on_stage(StageEntered(stage, ""))
            self._wait(seconds)
        return GradeFinished(_card(order, _CORRECT if kind == "right" else _WRONG))

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds / self.speed)

    def interrupt(self) -> None:
        """Do nothing: every wait is short."""

    def wait(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _card(order: WorkerOrder, made: Scorecard) -> Scorecard:
    problem = msgspec.structs.replace(made.problem, name=order.problem.name, sha256=order.problem.sha256)
    submission = msgspec.structs.replace(
        made.submission, name=order.submission.name, sha256=order.submission.sha256, source=order.submission.source
    )
    device = DeviceFacts(kind=DeviceKind.CUDA, name="a simulated GPU")
    return msgspec.structs.replace(made, problem=problem, submission=submission, device=device)


class Quiet:
    """Display of a batch that shows nothing."""

    def began(self, event: object) -> None:
        """Do nothing."""

    def result(self, result: CardResult) -> None:
        """Do nothing."""

    def refused(self, refused: object) -> None:
        """Do nothing."""


def tasks(problems: int, samples: int, *, shuffled: bool) -> list[Task]:
    """Return the submissions, by problem or shuffled."""
    draw = random.Random(27)
    made = [
        task(problem, sample, _KINDS[sample % len(_KINDS)], draw)
        for problem in range(problems)
        for sample in range(samples)
    ]
    if shuffled:
        draw.shuffle(made)
    return made


def task(problem: int, sample: int, kind: str, draw: random.Random) -> Task:
    """Return one submission, whose build takes a random time."""
    relu = Problems(None, (SizeName.SMALL,)).find("relu")
    named = msgspec.structs.replace(relu, name=f"problem_{problem:03}", sha256=f"{problem:064x}")
    source = f"# {kind} {draw.uniform(2 / 3, 4 / 3):.3f} {sample}"
    return from_text(source, f"sample_{sample}", "simulated", named)


def simulate(folder: RunFolder, given: list[Task], gpus: int, cores: int) -> None:
    """Grade the submissions with the real scheduler."""
    slots = [Slot(gpu=f"GPU-{number}", part=GradePart.FINISH) for number in range(gpus)]
    slots += [Slot(gpu=f"GPU-{number % gpus}", part=GradePart.BEGIN) for number in range(cores)]
    with PlanFile(folder) as plan, Refusals(folder, lambda _: False) as refusals:
        options = GradeOptions(DeviceKind.CUDA)
        Scheduler(folder, plan, refusals, iter(given), options, slots, Quiet(), hire=WaitingWorker).run()


class Slice(NamedTuple):
    """A slice of the timeline: a turn or a stage on a lane, in seconds since the start."""

    lane: int
    name: str
    began_s: float
    ended_s: float


def figures(path: Path, speed: float) -> dict[str, float]:
    """Return the figures of a timeline, in seconds of the simulated machine."""
    events = json.loads(path.read_text().rstrip().removesuffix(",") + "]")
    gpus = {
        event["tid"] for event in events if event["name"] == "thread_name" and event["args"]["name"].startswith("GPU")
    }
    slices = [
        Slice(event["tid"], event["name"], event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6)
        for event in events
        if event["ph"] == "X"
    ]
    turns = [each for each in slices if "/" in each.name]
    on_gpu = sorted((turn for turn in turns if turn.lane in gpus), key=lambda turn: turn.began_s)
    begin_s, ended_s = on_gpu[0].began_s, max(turn.ended_s for turn in turns)
    end_s = max(event["ts"] for event in events if event["name"] == WAITING) / 1e6

    def share(chosen: Iterable[Slice]) -> float:
        covered = sum(max(0.0, min(each.ended_s, end_s) - each.began_s) for each in chosen)
        return round(covered / (len(gpus) * (end_s - begin_s)), 3)

    return {
        "wall_s": round(ended_s * speed, 1),
        "first_gpu_turn_s": round(begin_s * speed, 1),
        "per_minute": round(len({turn.name for turn in turns}) / (ended_s * speed) * 60, 1),
        "busy": share(on_gpu),
        "judging": share(each for each in slices if each.lane in gpus and each.name in ("check", "time")),
        "setups": sum(_setups(on_gpu)),
    }


def _setups(on_gpu: Iterable[Slice]) -> Iterator[bool]:
    last: dict[int, str] = {}
    for turn in on_gpu:
        problem = turn.name.rpartition("/")[0]
        yield last.get(turn.lane) != problem
        last[turn.lane] = problem


def main() -> None:
    """Simulate one batch and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--cores", type=int, default=64)
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--shuffled", action="store_true")
    parser.add_argument("--speed", type=float, default=8.0, help="how many times as fast the simulation runs")
    arguments = parser.parse_args()
    given = tasks(arguments.problems, arguments.samples, shuffled=arguments.shuffled)
    WaitingWorker.speed = arguments.speed
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="simulation-") as place:
        manifest = manifest_for(GradeOptions(DeviceKind.CUDA), "-")
        with opened(Path(place) / "run", manifest) as folder:
            simulate(folder, given, arguments.gpus, arguments.cores)
        (timeline,) = folder.logs.glob("timeline-*.json")
        measured = figures(timeline, arguments.speed)
        written = len(list(folder.cards.glob("*/*.json")))
    used = resource.getrusage(resource.RUSAGE_SELF)
    asked = {"gpus": arguments.gpus, "cores": arguments.cores, "submissions": len(given), "cards": written}
    scheduler_cpu = round((used.ru_utime + used.ru_stime) / (time.monotonic() - began_s), 2)
    print(json.dumps(asked | measured | {"scheduler_cores": scheduler_cpu}))


if __name__ == "__main__":
    main()
