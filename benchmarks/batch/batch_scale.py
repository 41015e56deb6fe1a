"""How a run of many cards reads back: seconds and memory of a report, and of a resume that finds nothing to do.

    python -m benchmarks.batch.batch_scale FOLDER [CARDS]

makes CARDS (100 000) synthetic scorecards in FOLDER through the product's own records, with as many submissions, and
times the real commands, each in a process of its own: the first report after the index is lost, a report with it, and
the resume: of files that have not changed, and of files that were all touched and must be read again.
"""

import hashlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from evaluator.batch.runs.inputs import named_once, read_folder
from evaluator.batch.runs.problems import Problems
from evaluator.batch.runs.run_folder import PlanFile, RunFolder, manifest_for, opened
from evaluator.catalog import list_problems
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind, SizeName, Status
from tests import cards

TOP = Path(__file__).resolve().parents[2]
SAMPLES_OF = 1000


def make(top: Path, count: int) -> None:
    """Write submissions, plan and cards."""
    problems = list_problems().problems
    submissions = top / "submissions"
    for number in range(count):
        problem = problems[number // SAMPLES_OF % len(problems)]
        path = submissions / problem.name / f"sample_{number}.py"
        if number % SAMPLES_OF == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{cards.SOURCE}# {number}\n", encoding="utf-8")
    with (
        opened(top / "run", manifest_for(GradeOptions(DeviceKind.CPU), str(submissions))) as folder,
        PlanFile(folder) as plan,
    ):
        for number, task in enumerate(named_once(read_folder(submissions, Problems(None, (SizeName.SMALL,))))):
            plan.add(task)
            _write(folder, number, task)


def _write(folder: RunFolder, number: int, task) -> None:  # noqa: ANN001
    speedup = 0.5 + int(hashlib.sha256(str(number).encode()).hexdigest()[:8], 16) / 2**32 * 3
    made = cards.card(timing=cards.timing(submission_ms=1.852 / speedup)) if number % 3 else cards.wrong_card()
    card = msgspec.structs.replace(
        made,
        status=Status.CORRECT if number % 3 else Status.WRONG_RESULT,
        problem=msgspec.structs.replace(
            made.problem, name=task.problem.name, level=task.problem.level, sha256=task.problem.sha256
        ),
        submission=msgspec.structs.replace(
            made.submission, name=task.name, sha256=task.submission.sha256, source=task.submission.source
        ),
    )
    path = folder.cards / task.card
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=2))


def measured(name: str, *arguments: object) -> None:
    """Run one command; print its time and its largest memory."""
    began_s = time.perf_counter()
    command = [sys.executable, str(TOP / "cli.py"), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    told = process.stderr.read().decode()  # type: ignore[union-attr]
    _, _, used = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began_s
    cpu_s = used.ru_utime + used.ru_stime  # on a busy machine, the number to compare
    print(f"{name:30} {wall_s:6.2f} s, {cpu_s:6.2f} s of CPU  {used.ru_maxrss / 1024:5.0f} MiB  {told.strip()[-60:]}")


def main() -> None:
    """Make what is missing, then measure."""
    top, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    run, submissions = top / "run", top / "submissions"
    if not run.exists():
        make(top, count)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = sum(path.stat().st_size for path in run.glob("cards/**/*.json"))
    print(f"{count} cards, {size / 2**20:.0f} MiB; made with {used / 1024:.0f} MiB")
    measured("warming up", "report", run, "--json")
    (run / "index.sqlite").unlink(missing_ok=True)
    measured("report, without an index", "report", run, "--json")
    measured("report", "report", run, "--json")
    measured("report as text", "report", run)
    measured("resume, with nothing to do", "batch", submissions, "--run", run, "--device", "cpu")
    for path in submissions.glob("*/*"):
        path.touch()
    measured("resume, every file touched", "batch", submissions, "--run", run, "--device", "cpu")
    measured("compare with itself", "compare", run, run, "--json")


if __name__ == "__main__":
    main()
