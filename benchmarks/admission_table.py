"""Hold KernelBench's files against the controls of `warpgrade problems validate`, and write the table of docs/.

    python benchmarks/admission_table.py measure KernelBench/KernelBench admissions.jsonl
    python benchmarks/admission_table.py table admissions.jsonl > docs/kernelbench_admission.md

`measure` looks at each file at its small size, on the CPU, in a process of its own, and goes on where it was stopped.
The table has both rules on one set of inputs: KernelBench's (its own values, 1e-4), and ours.
"""

import collections
import multiprocessing
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from evaluator.catalog import list_problems
from evaluator.errors import WarpgradeError
from evaluator.records import Admission, Problem, Record, SizeName

_TIMEOUT_S = 600.0


class Line(Record, frozen=True):
    """What came of one file: its admission, or why there is none."""

    problem: str
    admission: Admission | None
    failure: str | None
    wall_s: float


def measure(folder: Path, target: Path) -> None:
    """Append a line for each file of `folder` that `target` does not have yet."""
    known = {line.problem for line in _read(target)} if target.exists() else set()
    with target.open("ab", buffering=0) as out:
        for problem in list_problems(folder).problems:
            if problem.name in known or problem.level > 3:  # noqa: PLR2004 - the levels that need nothing downloaded
                continue
            line = _in_its_own_process(problem)
            out.write(msgspec.json.encode(line) + b"\n")
            print(f"{line.problem}: {line.wall_s:.1f} s", file=sys.stderr)


def _in_its_own_process(problem: Problem) -> Line:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    started = time.monotonic()
    child = context.Process(target=_admit, args=(problem, theirs))
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


def _admit(problem: Problem, pipe: "multiprocessing.connection.Connection") -> None:
    from evaluator.judge.admission import admit

    started = time.monotonic()
    size = SizeName.SMALL if SizeName.SMALL in problem.sizes else SizeName.FULL
    try:
        line = Line(problem.name, admit(problem, size), None, time.monotonic() - started)
    except WarpgradeError as error:
        line = Line(problem.name, None, error.message, time.monotonic() - started)
    except Exception as error:  # noqa: BLE001 - a table of 250 files tells it of one, and goes on
        line = Line(problem.name, None, f"{type(error).__name__}: {error}", time.monotonic() - started)
    pipe.send_bytes(msgspec.json.encode(line))


def table(lines: list[Line]) -> str:
    """Write the page."""
    done = [line.admission for line in lines if line.admission is not None]
    text = [
        "# KernelBench's problems against bad submissions",
        "",
        "`warpgrade problems validate` on every file of levels 1 to 3, at its small size, on the CPU "
        "(`benchmarks/admission_table.py`). A control is a bad submission made up from the reference; it *passes* where "
        "no call shows it.",
        "KernelBench: its own inputs and its own rule (1e-4, against the plain reference). Warpgrade: its tolerance from "
        "measured error, and its value profiles beside the same inputs.",
        "",
        "| | level 1 | level 2 | level 3 |",
        "|---|---|---|---|",
    ]
    for what, count in _counts(done):
        text.append(f"| {what} | {' | '.join(str(count[level]) for level in (1, 2, 3))} |")
    text += ["", "## By control", "", "How many problems let it pass.", "", "| a submission that | KernelBench | Warpgrade |"]
    text += ["|---|---|---|"]
    kernelbench: collections.Counter[str] = collections.Counter()
    ours: collections.Counter[str] = collections.Counter()
    for admission in done:
        kernelbench.update({_kind(each.control) for each in admission.controls if each.passes_kernelbench})
        ours.update({_kind(each.control) for each in admission.controls if each.gets_away})
    for kind in sorted(kernelbench | ours, key=lambda kind: -kernelbench[kind]):
        text.append(f"| {kind} | {kernelbench[kind]} | {ours[kind]} |")
    text += ["", "## By problem", "", "Those that let at least one pass under either rule.", ""]
    text += ["| problem | KernelBench lets pass | Warpgrade lets pass |", "|---|---|---|"]
    for admission in done:
        theirs = [each.control for each in admission.controls if each.passes_kernelbench]
        away = [each.control for each in admission.controls if each.gets_away]
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


def _listed(names: list[str]) -> str:
    return "; ".join(names) or "–"


def _read(path: Path) -> list[Line]:
    return [msgspec.json.decode(line, type=Line) for line in path.read_bytes().splitlines()]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["measure", folder, target]:
            measure(Path(folder), Path(target))
        case ["table", source]:
            print(table(_read(Path(source))), end="")
        case _:
            sys.exit(__doc__)
