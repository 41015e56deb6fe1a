"""How busy the scheduler of a batch keeps many GPUs: the real scheduler, with workers that only wait.

    python -m benchmarks.batch.scheduler_simulation [--gpus 8] [--cores 64] [--problems 64] [--samples 16] [--speed 8]
    python -m benchmarks.batch.scheduler_simulation --leaderboard [--checks 2] [--again]

A worker of this simulation computes nothing: it waits for the times that stages took on an H200, divided by `--speed`.
Everything else is the product: the scheduler, the queue between builds and GPUs, the run folder, cards and timeline.
The figures come from the run's own timeline. `--shuffled` hands the submissions in in random order, not by problem.

`--checks N` gives each GPU N workers, which the product does not: it has one. Their turns are those of
`evaluator/devices/turns.py`: setups and checks side by side, timing and roofline alone. Checks side by side take as
long as one alone, which no GPU has shown: the figures are the most that N workers could gain. With `--again`, what
failed beside another check is checked again alone before it is a verdict, because the other may have taken the memory.
With `--ahead`, a GPU has one submission at a time: only setups, which run no submission, go on beside a check.
`--leaderboard` replaces the submissions and their times: 383 kernels for 156 problems on one GPU and 16 cores.

- *busy*: share of the GPUs' time with a submission, from the first turn on a GPU until no built submission waits.
- *judging*: share of that time in checks and timings.
- *alone*: share of that time in stages that need the GPU alone.
- *setups*: turns on a GPU whose problem is not the one before; a worker then sets up a problem anew.
- *waiting*: share of the workers' time in which they wait for a turn.

With several workers to a GPU, *busy* and *judging* may exceed 1.

Times in seconds, of the batch with an empty cache in docs/evidence/batch.md, and where they come from:

- start of a worker 10: its first card came after 23.6 s, of which the stages take 13.4.
- read 1.16, lint 0.11, build 6.92: medians of a builder. Build times scatter by a factor of two (seeded).
- device 3.5 for a worker's first grade of a problem: the sum of 28.2 over eight problems. Otherwise 0.006.
- read on the GPU's worker 0.2: of 77 s with everything built, 64 s are stages with the GPU, over 56 submissions.
- check 0.81, the mean. time 0.73 for correct submissions, the mean; of eight submissions four are correct, three wrong,
  and one does not compile.

Times of `--leaderboard`: device 1.8, check 1.5, time 3.6 and roofline 0.55 of a grade of a new problem, measured on an
H100. A later grade of the problem takes the times above, and 0.05 for the roofline, an estimate. Of 345 graded kernels
306 are correct and three do not compile (docs/evidence/trust.md).
"""

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.batch.runs.inputs import Problems, from_text
from evaluator.batch.runs.refusals import Refusals
from evaluator.batch.runs.run_folder import Plan, RunFolder, manifest_for, opened
from evaluator.batch.runs.tasks import Task
from evaluator.batch.runs.timeline_file import read_timeline
from evaluator.batch.scheduler import Result, Scheduler
from evaluator.batch.workers.messages import Built, Graded, NotGraded, Order, Part, Prepare, Stage
from evaluator.batch.workers.worker_handle import Slot
from evaluator.devices.turns import FileLatch, Hold, Turn
from evaluator.grade_options import GradeOptions
from evaluator.grading.request import Begun
from evaluator.progress import Lap
from evaluator.records import DeviceFacts, DeviceKind, Outcome, Scorecard, SizeName
from evaluator.report.timeline.recording import Activity, LaneKind, SessionTimeline, Span, waits
from tests import cards

START_S = 10.0
BUILDER_S = {"read": 1.16, "lint": 0.11, "build": 6.92}
GPU_READ_S = 0.2
LONGEST_TURN_S = 600.0
LOOK_S = 0.001


class GpuTimes(NamedTuple):
    """Seconds of the stages of one grade on a GPU."""

    device: float
    check: float
    time: float
    roofline: float


class Load(NamedTuple):
    """Submissions, and the times of a problem's first grade and of later grades by the same worker."""

    given: list[Task]
    first: GpuTimes
    later: GpuTimes


LATER = GpuTimes(device=0.006, check=0.81, time=0.73, roofline=0.0)
FIRST = LATER._replace(device=3.5)
LATER_OF_LEADERBOARD = LATER._replace(roofline=0.05)
FIRST_OF_LEADERBOARD = GpuTimes(device=1.8, check=1.5, time=3.6, roofline=0.55)
TURN = "turn"
OnStage = Callable[[Stage], None]
_BEGUN = Begun(outcome=Outcome(), lap=Lap("2026-01-01T00:00:00.000+00:00", {}, 0.0))
_CORRECT, _WRONG, _UNCOMPILED = cards.card(), cards.wrong_card(), cards.uncompiled_card()
_KINDS = ("right", "wrong", "right", "wrong", "right", "wrong", "right", "uncompiled")


class WaitingWorker:
    """Worker that waits for the measured times. The submission's first line says what comes of it."""

    speed = 1.0
    first = FIRST
    later = LATER
    again = ahead = False
    latches = Path()

    def __init__(self, slot: Slot, _log: Path | None) -> None:
        """Wait for nothing yet."""
        self._started = False
        self._problem = ""
        self._turn, self._with_submission = (self._turn_of(f"{slot.gpu}.{what}") for what in ("gpu", "submission"))

    def prepare(self, _: Prepare) -> bool:
        """Wait for the start of a worker, once."""
        if not self._started:
            self._started = True
            self._wait(START_S)
        return True

    def grade(self, order: Order, on_stage: OnStage) -> Built | Graded | NotGraded:
        """Wait through the stages of the slot's part."""
        self.prepare(Prepare(order.options))
        kind, factor = order.submission.source.split()[1:3]
        if order.part is Part.BEGIN:
            for stage, seconds in BUILDER_S.items():
                on_stage(Stage(stage, ""))
                self._wait(seconds * (float(factor) if stage == "build" else 1.0))
            return Graded(_card(order, _UNCOMPILED)) if kind == "uncompiled" else Built(_BEGUN)
        times = self.later if self._problem == order.problem.sha256 else self.first
        self._problem = order.problem.sha256
        on_stage(Stage("read", ""))
        self._wait(GPU_READ_S)
        self._grade(times, on_stage, right=kind == "right")
        return Graded(_card(order, _CORRECT if kind == "right" else _WRONG))

    def _grade(self, times: GpuTimes, on_stage: OnStage, *, right: bool) -> None:
        if self.ahead:
            self._take(Hold.SHARED, {"device": times.device}, on_stage)
            self._begin(self._with_submission, Hold.ALONE, on_stage)
            self._take(Hold.SHARED, {"check": times.check}, on_stage)
        else:
            self._take(Hold.SHARED, {"device": times.device, "check": times.check}, on_stage)
        if right:
            self._take(Hold.ALONE, {"time": times.time, "roofline": times.roofline}, on_stage)
        elif self.again:
            self._take(Hold.ALONE, {"check": times.check}, on_stage)
        self._with_submission.end()

    def _turn_of(self, name: str) -> Turn:
        return Turn(*(FileLatch(self.latches / f"{name}.{kind}") for kind in ("gate", "room")))

    def _begin(self, turn: Turn, hold: Hold, on_stage: OnStage) -> None:
        on_stage(Stage(TURN, ""))
        if not turn.begin(hold, LONGEST_TURN_S, LOOK_S):
            raise RuntimeError("a turn never came")

    def _take(self, hold: Hold, stages: dict[str, float], on_stage: OnStage) -> None:
        """Wait for a turn on the GPU, then for the stages of the turn."""
        self._begin(self._turn, hold, on_stage)
        for stage, seconds in stages.items():
            on_stage(Stage(stage, ""))
            self._wait(seconds)
        self._turn.end()

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds / self.speed)

    def interrupt(self) -> None:
        """Do nothing: every wait is short."""

    def wait(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _card(order: Order, made: Scorecard) -> Scorecard:
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

    def result(self, result: Result) -> None:
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


def leaderboard() -> list[Task]:
    """Return 383 submissions for 156 problems: three for each of 71, two for each of the others."""
    draw = random.Random(27)
    kinds = draw.choices(["right", "wrong", "uncompiled"], [306, 36, 3], k=383)
    places = [(problem, sample) for problem in range(156) for sample in range(3 if problem < 71 else 2)]
    return [task(*place, kind, draw) for place, kind in zip(places, kinds, strict=True)]


def task(problem: int, sample: int, kind: str, draw: random.Random) -> Task:
    """Return one submission, whose build takes a random time."""
    relu = Problems(None, SizeName.SMALL).find("relu")
    named = msgspec.structs.replace(relu, name=f"problem_{problem:03}", sha256=f"{problem:064x}")
    source = f"# {kind} {draw.uniform(2 / 3, 4 / 3):.3f} {sample}"
    return from_text(source, f"sample_{sample}", "simulated", named)


def simulate(folder: RunFolder, given: list[Task], gpus: int, cores: int, checks: int) -> None:
    """Grade the submissions with the real scheduler."""
    slots = [Slot(gpu=f"GPU-{number}", part=Part.FINISH) for number in range(gpus) for _ in range(checks)]
    slots += [Slot(gpu=f"GPU-{number % gpus}", part=Part.BEGIN) for number in range(cores)]
    with Plan(folder) as plan, Refusals(folder, lambda _: False) as refusals:
        options = GradeOptions(DeviceKind.CUDA)
        Scheduler(folder, plan, refusals, iter(given), options, slots, Quiet(), hire=WaitingWorker).run()


def figures(timeline: SessionTimeline, speed: float) -> dict[str, float]:
    """Return the figures of a run, in seconds of the simulated machine."""
    lanes = [lane for lane in timeline.session.lanes if lane.kind is LaneKind.GPU]
    on_gpu = [turn for turn in timeline.turns if timeline.session.lanes[turn.lane].kind is LaneKind.GPU]
    gpus = len({lane.gpu for lane in lanes})
    begin_s = min(turn.began_s for turn in on_gpu)
    end_s = max(wait.ended_s for wait in waits(timeline))
    spans = [span for turn in on_gpu for span in turn.spans]

    def share(wanted: Callable[[Span], bool], among: int) -> float:
        covered = sum(max(0.0, min(span.ended_s, end_s) - span.began_s) for span in spans if wanted(span))
        return round(covered / (among * (end_s - begin_s)), 3)

    return {
        "wall_s": round(timeline.ended_s * speed, 1),
        "first_gpu_turn_s": round(begin_s * speed, 1),
        "per_minute": round(len(_graded(timeline)) / (timeline.ended_s * speed) * 60, 1),
        "busy": share(lambda span: span.stage != TURN, gpus),
        "judging": share(lambda span: span.activity in (Activity.CHECK, Activity.TIME), gpus),
        "alone": share(lambda span: span.hold is Hold.ALONE, gpus),
        "waiting": share(lambda span: span.stage == TURN, len(lanes)),
        "setups": sum(_setups(timeline)),
    }


def _graded(timeline: SessionTimeline) -> set[tuple[str, str]]:
    return {(turn.problem, turn.name) for turn in timeline.turns}


def _setups(timeline: SessionTimeline) -> Iterator[bool]:
    last: dict[int, str] = {}
    for turn in sorted(timeline.turns, key=lambda each: each.began_s):
        if timeline.session.lanes[turn.lane].kind is LaneKind.GPU:
            yield last.get(turn.lane) != turn.problem
            last[turn.lane] = turn.problem


def main() -> None:
    """Simulate one batch and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--cores", type=int, default=64)
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--shuffled", action="store_true")
    parser.add_argument("--leaderboard", action="store_true", help="383 kernels, one GPU, 16 cores")
    parser.add_argument("--checks", type=int, default=1, help="workers of each GPU")
    parser.add_argument("--again", action="store_true", help="check again alone what failed beside another check")
    parser.add_argument("--ahead", action="store_true", help="one submission on a GPU at a time, beside setups")
    parser.add_argument("--speed", type=float, default=8.0, help="how many times as fast the simulation runs")
    arguments = parser.parse_args()
    gpus, cores = (1, 16) if arguments.leaderboard else (arguments.gpus, arguments.cores)
    if arguments.leaderboard:
        load = Load(leaderboard(), FIRST_OF_LEADERBOARD, LATER_OF_LEADERBOARD)
    else:
        load = Load(tasks(arguments.problems, arguments.samples, shuffled=arguments.shuffled), FIRST, LATER)
    WaitingWorker.speed, WaitingWorker.again, WaitingWorker.ahead = arguments.speed, arguments.again, arguments.ahead
    WaitingWorker.first, WaitingWorker.later = load.first, load.later
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="simulation-") as place:
        WaitingWorker.latches = Path(place)
        manifest = manifest_for(GradeOptions(DeviceKind.CUDA), "-")
        with opened(Path(place) / "run", manifest) as folder:
            simulate(folder, load.given, gpus, cores, arguments.checks)
        (timeline,) = read_timeline(folder).sessions
        written = len(list(folder.cards.glob("*/*.json")))
    used = resource.getrusage(resource.RUSAGE_SELF)
    asked = {"gpus": gpus, "cores": cores, "checks": arguments.checks, "submissions": len(load.given), "cards": written}
    scheduler_cpu = round((used.ru_utime + used.ru_stime) / (time.monotonic() - began_s), 2)
    print(json.dumps(asked | figures(timeline, arguments.speed) | {"scheduler_cores": scheduler_cpu}))


if __name__ == "__main__":
    main()
