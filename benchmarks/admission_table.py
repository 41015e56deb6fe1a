"""Hold KernelBench's files against the controls of `warpgrade problems validate`, and write the table of docs/.

    python benchmarks/admission_table.py measure KernelBench/KernelBench admissions.jsonl [--jobs N]
    python benchmarks/admission_table.py table admissions.jsonl > docs/kernelbench_admission.md

`measure` looks at each file at its small size, on the CPU, in a process of its own, `N` files at a time, and goes on
where it was stopped.
The table has both rules on one set of inputs: KernelBench's (its own values, 1e-4), and ours.
"""

import collections
import multiprocessing
import multiprocessing.connection
import re
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import msgspec

from evaluator.catalog import list_problems
from evaluator.errors import WarpgradeError
from evaluator.records import Admission, Problem, Record, SizeName

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
_INTRODUCTION = """\
`warpgrade problems validate` on the files of levels 1 to 3, at their small sizes, on the CPU
(`benchmarks/admission_table.py`). A control is a bad submission made up from the reference; it *passes* where no call
shows it. KernelBench: its own inputs and its own rule (1e-4, against the plain reference). Warpgrade: a tolerance from
measured error, value profiles beside the same inputs, and of fewer bits the rounding in an answer's errors, which calls
that are timed show.""".splitlines()


class Line(Record, frozen=True):
    """What came of one file: its admission, or why there is none."""

    problem: str
    admission: Admission | None
    failure: str | None
    wall_s: float


def measure(folder: Path, target: Path, jobs: int) -> None:
    """Append a line for each file of `folder` that `target` does not have yet, `jobs` files at a time."""
    import evaluator.admission.admission  # noqa: F401 - each child would take seconds for it

    known = {line.problem for line in _read(target)} if target.exists() else set()
    problems = [each for each in list_problems(folder).problems if each.name not in known and each.level <= 3]
    with target.open("ab", buffering=0) as out, ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(_in_its_own_process, problem) for problem in problems]):
            line = done.result()
            out.write(msgspec.json.encode(line) + b"\n")
            print(f"{line.problem}: {line.wall_s:.1f} s", file=sys.stderr)


def _in_its_own_process(problem: Problem) -> Line:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    started = time.monotonic()
    child = context.Process(target=_admit, args=(problem, theirs))
    with _FORKING:
        child.start()
    theirs.close()
    said = None
    if ours.poll(_TIMEOUT_S):
        try:
            said = msgspec.json.decode(ours.recv_bytes(), type=Line)
        except EOFError:
            said = Line(problem.name, None, "its process died", 0.0)
    child.kill()
    child.join()
    wall_s = time.monotonic() - started
    return Line(problem.name, None, f"not done after {_TIMEOUT_S:.0f} s", wall_s) if said is None else said


def _admit(problem: Problem, pipe: multiprocessing.connection.Connection) -> None:
    from evaluator.admission.admission import admit

    started = time.monotonic()
    size = SizeName.SMALL if SizeName.SMALL in problem.sizes else SizeName.FULL
    try:
        line = Line(problem.name, admit(problem, size), None, time.monotonic() - started)
    except WarpgradeError as error:
        line = Line(problem.name, None, error.message.replace(problem.path, "its file"), time.monotonic() - started)
    except Exception as error:  # noqa: BLE001 - a table of 250 files tells it of one, and goes on
        line = Line(problem.name, None, f"{type(error).__name__}: {error}", time.monotonic() - started)
    pipe.send_bytes(msgspec.json.encode(line))


def table(lines: list[Line]) -> str:
    """Write the page."""
    done = [line.admission for line in lines if line.admission is not None]
    text = [
        "# KernelBench's problems against bad submissions",
        "",
        *_INTRODUCTION,
        "",
        "| | level 1 | level 2 | level 3 |",
        "|---|---|---|---|",
    ]
    for what, count in _counts(done):
        text.append(f"| {what} | {' | '.join(str(count[level]) for level in (1, 2, 3))} |")
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
    text += ["", "## By problem", "", "Those that let at least one pass under either rule.", ""]
    text += ["| problem | KernelBench lets pass | Warpgrade lets pass |", "|---|---|---|"]
    for admission in done:
        theirs = _brief([each.control for each in admission.controls if each.passes_kernelbench])
        away = _brief([each.control for each in admission.controls if each.gets_away])
        away += [f"*refuses* {failure}" for failure in admission.honest_failures]
        if theirs or away:
            text.append(f"| {admission.problem} | {_listed(theirs)} | {_listed(away)} |")
    failed = [line for line in lines if line.admission is None]
    if failed:
        text += ["", "## Not looked at", "", *(f"- {line.problem}: {line.failure}" for line in failed)]
    return "\n".join(text) + "\n"


def _counts(done: list[Admission]) -> Iterable[tuple[str, dict[int, int]]]:
    rules = {
        "problems": lambda _: True,
        "KernelBench's rule lets at least one pass": lambda one: any(each.passes_kernelbench for each in one.controls),
        "Warpgrade lets at least one pass": lambda one: any(each.gets_away for each in one.controls),
        "Warpgrade refuses an honest variant": lambda one: bool(one.honest_failures),
    }
    for what, rule in rules.items():
        yield what, {level: sum(rule(one) for one in done if _level(one.problem) == level) for level in (1, 2, 3)}


def _level(name: str) -> int:
    return int(name.partition("/")[0].removeprefix("level"))


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
        seen, passing = [], []
        for number in numbers:
            results = by_number[number].controls if number in by_number else []
            found = next((each for each in results if each.control == control), None)
            seen += [number] if found is not None and found.passes_kernelbench else []
            passing += [number] if found is not None and found.gets_away else []
        yield f"| {control} | {', '.join(numbers)} | {', '.join(seen) or 'none'} | {', '.join(passing) or 'none'} |"


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
    lines = [msgspec.json.decode(line, type=Line) for line in path.read_bytes().splitlines()]
    return sorted(lines, key=lambda line: [int(number) for number in re.findall(r"\d+", line.problem)[:2]])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", folder, target]:
            measure(Path(folder), Path(target), jobs=1)
        case ["measure", folder, target, "--jobs", jobs]:
            measure(Path(folder), Path(target), int(jobs))
        case ["table", source]:
            print(table(_read(Path(source))), end="")
        case _:
            sys.exit(__doc__)
