"""Hold KernelBench's files against the controls of `warpgrade problems validate`, and write the table of docs/.

    python -m benchmarks.verdicts.admission_table measure KernelBench/KernelBench admissions.jsonl [--jobs N]
    python -m benchmarks.verdicts.admission_table table admissions.jsonl > docs/kernelbench_admission.md
    python -m benchmarks.verdicts.admission_table measure problems half.jsonl --precision bf16 fp16 --seconds 60
    python -m benchmarks.verdicts.admission_table controls half.jsonl --output half.json > half.md

`measure` admits each file at its small size, on the CPU, in a process of its own, `N` files at a time, and continues
where it was stopped. Each line has the commit of its measurement; files with a line of an earlier commit are measured
again.
The table has both rules on one set of inputs: KernelBench's (its own values, 1e-4), and Warpgrade's.
A problem that lets a control pass has its reason in `REASONS`, or is listed as not explained.

With `--precision`, problems are cast to half precision (`benchmarks/numerics/generated_problems.py`). `controls` then
says for each problem, control and dtype whether the control passes: as a table of the controls that pass, and as JSON.
"""

import argparse
import collections
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.numerics.generated_problems import DTYPES, in_precision
from evaluator.catalog import list_problems
from evaluator.errors import WarpgradeError
from evaluator.records import Admission, Precision, Problem, Record, SizeName
from evaluator.text import counted

_TIMEOUT_S = 600.0
_MOST_WEIGHTS = 3
_FORKING = threading.Lock()
"""One fork at a time: filelock refuses a fork during another thread's."""
_KNOWN = {
    "hands an input back": ["1-19", "1-20", "1-31", "1-32"],
    "answers zeros": ["1-23", "1-37", "2-9", "2-23", "2-38", "2-80", "2-83"],
    "answers with another call's output": [
        *("1-23", "1-37", "2-9", "2-23", "2-36", "2-38", "2-80", "2-83"),
        *("3-3", "3-7", "3-11", "3-12", "3-18", "3-28", "3-35"),
    ],
    "computes in bf16": ["1-4", "1-6"],
}
_FILES = {1: 100, 2: 100, 3: 50}
"""Numbers of KernelBench's files, by level."""
_FOLDER = Path(__file__).parents[2]
_INTRODUCTION = """\
`warpgrade problems validate` on the files of levels 1 to 3, at their small sizes, on the CPU
(`benchmarks/verdicts/admission_table.py`). A control is a bad submission derived from the reference; it *passes* if no
call reveals it. KernelBench: its own inputs, the constructed weights and its own rule (1e-4, against the plain
reference). Warpgrade: weights of its own in each call, the input distributions of a grade, rows that cancel, the
[tolerance](tolerance.md) with the rounding of the call, and tests for fewer bits.""".splitlines()

REASONS = {
    "1-90": "A product of some 20 numbers below 1 is within the tolerance of a row of 32,768 such products.",
    "2-58": "The bias is one number. In 40 of 120 draws it puts all values beyond the clamp: the output is constant.",
    "2-80": (
        "The mean over a single element is subtracted from the element: the output is 0 for all inputs. The refused "
        "variant has a mean that is one ulp off, and no tolerance is relative to 0; a mean of one element is exact."
    ),
    "2-83": "Values are at most 0 after the minimum and at least 0 after the clamp: the output is 0 for all inputs.",
    "3-3": (
        "Layers shrink changes: other draws of the first three biases move the output by 9e-7 to 4e-6 of its RMS. "
        "The tolerance begins at 5e-5."
    ),
    "3-10": (
        "Inputs are at least 0. No other distribution is used: another order of summation moves the output by 1.5e-3 "
        "to 7e-3 of its size."
    ),
    "3-12": (
        "Layers shrink changes: other draws of the first five biases move the output by 9e-7 to 7e-6 of its RMS. "
        "The tolerance begins at 5e-5."
    ),
    "3-18": (
        "Layers shrink changes: other draws of the first five biases move the output by 9e-8 to 4e-6 of its RMS. "
        "The tolerance begins at 5e-5."
    ),
    "3-20": (
        "Inputs are at least 0. No other distribution is used: another order of summation moves the output by 5.9e-4 "
        "to 1.5e-2 of its size."
    ),
    "3-24": (
        "Batch norms over the two images of a batch give plus or minus 1, and rounding decides the sign: another order "
        "of summation moves the output by 2.6 to 3.5 times its size. A grade is inconclusive (C426)."
    ),
    "3-28": "Attention is over the batch, and the class token is the same in each image: no image reaches the output.",
}
"""Reasons why problems let controls pass, by number: properties of the problems, found by reading."""


class Line(Record, frozen=True):
    """Result of a file at a commit: its admission, or the reason for none. `precision`: the problem was cast to it."""

    commit: str
    problem: str
    admission: Admission | None
    failure: str | None
    wall_s: float
    precision: Precision | None = None


class _Task(NamedTuple):
    """A problem that a process of its own admits."""

    commit: str
    problem: Problem
    precision: Precision | None
    seconds: float

    def line(self, admission: Admission | None, failure: str | None, wall_s: float) -> Line:
        return Line(self.commit, self.problem.name, admission, failure, wall_s, self.precision)


def measure(
    folder: Path,
    target: Path,
    jobs: int,
    precisions: Sequence[Precision | None] = (None,),
    seconds: float = _TIMEOUT_S,
    only: Sequence[str] = ("",),
) -> None:
    """Append a line for each file of `folder` that `target` lacks at this commit, `jobs` files at a time.

    `precisions` are those that problems are cast to, None for the problem's. `only` has parts of names.

    Raises:
        subprocess.CalledProcessError: no commit is known.
    """
    # As in `problems validate`: threads that spin beside other work took ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import evaluator.admission.admission  # noqa: F401 - each child would take seconds for it

    commit = _commit()
    lines = _read(target) if target.exists() else []
    known = {(line.problem, line.precision) for line in lines if line.commit == commit}
    tasks = [
        _Task(commit, each if precision is None else in_precision(each, precision), precision, seconds)
        for each in list_problems(folder).problems
        for precision in precisions
        if (each.name, precision) not in known and each.level <= 3 and any(part in each.name for part in only)
    ]
    with target.open("ab", buffering=0) as out, ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(_in_its_own_process, task) for task in tasks]):
            line = done.result()
            out.write(msgspec.json.encode(line) + b"\n")
            print(f"{line.problem}{_of(line)}: {line.wall_s:.1f} s", file=sys.stderr)


def _of(line: Line) -> str:
    return "" if line.precision is None else f" in {line.precision.value}"


def _commit() -> str:
    """Return the commit of the code that measures, marked if files of the code differ from it."""
    git = ("git", "-C", str(_FOLDER), "describe", "--always", "--dirty", "--exclude=*")
    return subprocess.run(git, capture_output=True, check=True, text=True).stdout.strip()


def _in_its_own_process(task: _Task) -> Line:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    started = time.monotonic()
    child = context.Process(target=_admit, args=(task, theirs))
    with _FORKING:
        child.start()
    theirs.close()
    said = None
    if ours.poll(task.seconds):
        try:
            said = msgspec.json.decode(ours.recv_bytes(), type=Line)
        except EOFError:
            said = task.line(None, "its process died", 0.0)
    child.kill()
    child.join()
    wall_s = time.monotonic() - started
    return task.line(None, f"not done after {task.seconds:.0f} s", wall_s) if said is None else said


def _admit(task: _Task, pipe: multiprocessing.connection.Connection) -> None:
    from evaluator.admission.admission import admit

    started = time.monotonic()
    problem = task.problem
    size = SizeName.SMALL if SizeName.SMALL in problem.cases else SizeName.FULL
    admission, failure = None, None
    try:
        admission = admit(problem, size)
    except WarpgradeError as error:
        failure = error.message.replace(problem.path, "its file")
    except Exception as error:  # noqa: BLE001 - a table of 250 files reports a failed one, and continues
        failure = f"{type(error).__name__}: {error}"
    line = task.line(admission, failure, time.monotonic() - started)
    pipe.send_bytes(msgspec.json.encode(line))


def table(lines: list[Line]) -> str:
    """Write the page."""
    done = [line.admission for line in lines if line.admission is not None]
    text = [
        "# KernelBench's problems against bad submissions",
        "",
        *_INTRODUCTION,
        "",
        *_measured(lines),
        "",
        "| | level 1 | level 2 | level 3 |",
        "|---|---|---|---|",
    ]
    for what, count in _counts(done):
        text.append(f"| {what} | {' | '.join(str(count[level]) for level in (1, 2, 3))} |")
    text += ["", "## What remains", "", *_remaining(done)]
    text += ["", "## What was known", ""]
    text += ["Found by hand at full size, against what is seen here at the small one (level-number).", ""]
    text += ["| a submission that | known to pass | passes KernelBench's rule here | passes Warpgrade |"]
    text += ["|---|---|---|---|", *_known(done)]
    text += ["", "## By control", "", "How many problems let it pass.", ""]
    text += ["| a submission that | KernelBench | Warpgrade |", "|---|---|---|"]
    kernelbench: collections.Counter[str] = collections.Counter()
    ours: collections.Counter[str] = collections.Counter()
    for admission in done:
        kernelbench.update({_kind(each.control) for each in admission.controls if each.passes_kernelbench})
        ours.update({_kind(each.control) for each in admission.controls if each.gets_away})
    for kind in sorted(kernelbench | ours, key=lambda kind: (-kernelbench[kind], kind)):
        text.append(f"| {kind} | {kernelbench[kind]} | {ours[kind]} |")
    failed = [line for line in lines if line.admission is None]
    if failed:
        text += ["", "## Not looked at", "", *(f"- {line.problem}: {line.failure}" for line in failed)]
    return "\n".join(text) + "\n"


def _measured(lines: list[Line]) -> Iterable[str]:
    """Tell the commits of the lines, and the problems without a line."""
    commits = collections.Counter(line.commit for line in lines if line.admission is not None)
    counts = [f"{counted(count, 'problem')} at commit {commit}" for commit, count in commits.most_common()]
    measured = {_number(line.problem) for line in lines}
    missing = {
        level: [at for at in range(1, most + 1) if f"{level}-{at}" not in measured] for level, most in _FILES.items()
    }
    yield f"Measured: {', '.join(counts)}."
    for level, places in missing.items():
        if places:
            yield f"Not measured of level {level}: {counted(len(places), 'problem')} ({', '.join(_ranges(places))})."


def _ranges(numbers: list[int]) -> Iterable[str]:
    """Shorten consecutive numbers.

    >>> list(_ranges([1, 3, 4, 5, 7, 8]))
    ['1', '3 to 5', '7', '8']
    """
    for _, group in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        found = [number for _, number in group]
        yield from map(str, found) if len(found) <= 2 else [f"{found[0]} to {found[-1]}"]


def _remaining(done: list[Admission]) -> Iterable[str]:
    """Hold each problem that lets a control pass, or that refuses an honest variant, against its reason."""
    weak = [each for each in done if not each.admitted]
    if not weak:
        yield "No problem lets a control pass or refuses an honest variant."
        return
    yield "| problem | lets pass | refuses | reason |"
    yield "|---|---|---|---|"
    for admission in weak:
        away = _listed(_brief([each.control for each in admission.controls if each.gets_away]))
        refused = _listed(admission.honest_failures)
        reason = REASONS.get(_number(admission.problem), "*not explained*")
        yield f"| {admission.problem} | {away} | {refused} | {reason} |"


def _counts(done: list[Admission]) -> Iterable[tuple[str, dict[int, int]]]:
    rules = {
        "problems measured": lambda _: True,
        "KernelBench's rule lets at least one pass": lambda one: any(each.passes_kernelbench for each in one.controls),
        "Warpgrade lets at least one pass": lambda one: any(each.gets_away for each in one.controls),
        "Warpgrade lets a weight be ignored": lambda one: any(
            each.gets_away and _kind(each.control) == _WEIGHT for each in one.controls
        ),
        "Warpgrade refuses an honest variant": lambda one: bool(one.honest_failures),
    }
    for what, rule in rules.items():
        yield what, {level: sum(rule(one) for one in done if _level(one.problem) == level) for level in (1, 2, 3)}


def _level(name: str) -> int:
    return int(name.partition("/")[0].removeprefix("level"))


_WEIGHT = "ignores a weight"


def _kind(control: str) -> str:
    for kind in ("ignores input", "ignores weight"):
        if control.startswith(kind):
            return kind.replace("input", "an input").replace("weight", "a weight")
    return control


def _brief(controls: list[str]) -> list[str]:
    """Count the weights where there are many."""
    weights = [each for each in controls if each.startswith("ignores weight ")]
    if len(weights) <= _MOST_WEIGHTS:
        return controls
    return [*(each for each in controls if each not in weights), f"ignores any of {len(weights)} weights"]


def _known(done: list[Admission]) -> Iterable[str]:
    """Hold what others found at full size against what is seen here."""
    by_number = {_number(admission.problem): admission for admission in done}
    for control, numbers in _KNOWN.items():
        seen, passing, missing = [], [], [number for number in numbers if number not in by_number]
        for number in numbers:
            results = by_number[number].controls if number in by_number else []
            found = next((each for each in results if each.control == control), None)
            seen += [number] if found is not None and found.passes_kernelbench else []
            passing += [number] if found is not None and found.gets_away else []
        ours = [*passing, *(f"{number} (not measured)" for number in missing)]
        yield f"| {control} | {', '.join(numbers)} | {', '.join(seen) or 'none'} | {', '.join(ours) or 'none'} |"


def _number(name: str) -> str:
    """Shorten a problem's name.

    >>> _number("level1/19_ReLU")
    '1-19'
    """
    level, _, stem = name.partition("/")
    return f"{level.removeprefix('level')}-{stem.partition('_')[0]}"


def _listed(names: list[str]) -> str:
    return "; ".join(names) or "none"


def _read(path: Path) -> list[Line]:
    """Return the last line of each problem, in the problems' order."""
    lines = [msgspec.json.decode(line, type=Line) for line in path.read_bytes().splitlines()]
    last = {(line.problem, line.precision): line for line in lines}
    return sorted(last.values(), key=lambda line: [int(number) for number in re.findall(r"\d+", line.problem)[:2]])


def controls(lines: list[Line]) -> list[dict[str, Any]]:
    """Return the result of each control by problem and precision: whether it passes, and what reveals it."""
    return [
        {
            "problem": line.problem,
            "precision": "own" if line.precision is None else line.precision.value,
            "control": each.control,
            "passes": each.gets_away,
            "caught_on": None if each.caught_on is None else each.caught_on.value,
            "caught_by_rounding": each.caught_by_rounding,
            "passes_kernelbench": each.passes_kernelbench,
            "advice": each.advice,
        }
        for line in lines
        if line.admission is not None
        for each in line.admission.controls
    ]


def table_of_controls(lines: list[Line]) -> str:
    """Return the controls that pass in Markdown: by control and precision, and by problem."""
    done, rows = [line for line in lines if line.admission is not None], controls(lines)
    precisions = sorted({row["precision"] for row in rows})
    text = [f"| a submission that | {' | '.join(precisions)} |", f"|---|{'---|' * len(precisions)}"]
    for kind in dict.fromkeys(_kind(row["control"]) for row in rows):
        of_kind = [row for row in rows if _kind(row["control"]) == kind]
        cells = []
        for precision in precisions:
            tried = [row for row in of_kind if row["precision"] == precision]
            names = {row["problem"] for row in tried if row["passes"]}
            cells.append(f"{len(names)} of {len({row['problem'] for row in tried})}")
        text.append(f"| {kind} | {' | '.join(cells)} |")
    text += ["", "| problem | precision | passes | refuses |", "|---|---|---|---|"]
    for line in done:
        away = _brief([each.control for each in line.admission.controls if each.gets_away])
        if away or line.admission.honest_failures:
            precision = "own" if line.precision is None else line.precision.value
            text.append(
                f"| {line.problem} | {precision} | {_listed(away)} | {_listed(line.admission.honest_failures)} |"
            )
    failed = [line for line in lines if line.admission is None]
    if failed:
        text += ["", "Not measured:", "", *(f"- {line.problem}{_of(line)}: {line.failure}" for line in failed)]
    return "\n".join(text) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Measure controls, or print the table of earlier measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measured = commands.add_parser("measure", help="admit the problems of a folder")
    measured.add_argument("folder", type=Path)
    measured.add_argument("target", type=Path, help="file of JSON lines; a repeated command continues")
    measured.add_argument("--jobs", type=int, default=1)
    measured.add_argument("--precision", nargs="+", choices=[precision.value for precision in DTYPES])
    measured.add_argument("--seconds", type=float, default=_TIMEOUT_S, help="time limit of one problem")
    measured.add_argument("--only", nargs="+", default=[""], help="parts of problem names")
    commands.add_parser("table", help="print the page of docs").add_argument("source", type=Path)
    by_control = commands.add_parser("controls", help="print which controls pass")
    by_control.add_argument("source", type=Path)
    by_control.add_argument("--output", type=Path, help="JSON file: each problem, control and precision")
    options = parser.parse_args(arguments)
    if options.command == "measure":
        precisions = [None] if options.precision is None else [Precision(each) for each in options.precision]
        measure(options.folder, options.target, options.jobs, precisions, options.seconds, options.only)
        return
    lines = _read(options.source)
    if options.command == "table":
        print(table([line for line in lines if line.precision is None]), end="")
        return
    if options.output is not None:
        options.output.write_text(json.dumps(controls(lines), indent=1) + "\n")
    print(table_of_controls(lines), end="")


if __name__ == "__main__":
    main()
