"""Grade the zoo of `tests/zoo` and write its table: row, verdict on the cheat, twin, positive control, mutation.

    python -m benchmarks.verdicts.zoo_table [--output docs/zoo.md] [ROW …]

Without ROW (names) all rows are graded that can be graded here: some twenty minutes on two cores. Without a GPU the
verdicts on rows that need one are not guessed: cells that the output file has of them stay, and of a new row the table
says that it was not graded.
"""

import argparse
import os
import tempfile
from collections import Counter
from pathlib import Path

import torch

from evaluator.records import DeviceKind, Status
from tests.grading.harness import passable_folder
from tests.zoo.attacks import attacks
from tests.zoo.entries import Entry, entries
from tests.zoo.grading import Accepted, Judge, control
from tests.zoo.mutations import BITES

_HEAD = """\
# The zoo

Known ways to fool a grader, and Warpgrade's verdict on each. A row is a folder of `tests/zoo` with the cheat, its
honest twin (the same submission without the cheat), the expected verdict, and a naive grader, which accepts the cheat:
the cheat works. `make zoo` writes this page; `WARPGRADE_ZOO=all pytest tests/zoo` asserts every cell.

| state | meaning |
|---|---|
| rejected for its reason | not `correct`, with one of the codes that the row names and no other |
| gains nothing | the result is correct, only a claim is false: the quoted time or the printed text shows no gain |
| problem refused | the problem requires no work; `warpgrade problems validate` reports such a problem |
| not yet | a hole, or a row that was not graded; "Cells that are missing" names the cause |

- *Mutation*: the cheat must pass when the invariant of its row is switched off (`tests/zoo/mutations.py`, `make long`).
  Invariants of the architecture have no switch (*structure*): separate processes, bytes instead of objects, the
  sandbox. The naive grader then serves as the judge without the invariant.
- *None* in the column of naive graders: these run on a GPU and have no windows, so the mutation alone proves that the
  check is needed.
- Rows without own kernels are graded with `--require-own-kernel 0.5`; without this option they are `correct`, with
  findings.
- A row of windows gains nothing if its quoted time is at most 0.5 µs and 3 % below its twin's, or if T318 quotes no
  speedup.
- Ten rows also have a form in Triton (`tests/zoo/triton/`), five one in half precision (`tests/zoo/half/`).

Cells that need a GPU are from an H200 (torch 2.11, nvcc 13.0); rows 61 to 68 are from tests on an H100, which accept
the verdicts listed here. The other cells were graded on 2 cores without a GPU.
"""

_NOT_GRADED = "not graded"
_NEEDS_GPU = "needs a GPU"
_TITLES = ("row", "threat", "device", "verdict on the cheat", "twin", "naive grader accepts", "mutation", "state")
_COLUMNS = len(_TITLES)


def main() -> None:
    """Grade, print each row as it is done, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    known = entries()
    before = _cells_of(options.output)
    # Rows that are not named stay in the output file as they are.
    chosen = [entry for entry in known if not options.rows or entry.name in options.rows or entry.name in before]
    # Neighbours share a problem, which is set up once.
    ordered = sorted(chosen, key=lambda entry: (entry.expected.device, entry.expected.problem, entry.expected.row))
    lines: dict[int, tuple[str, str]] = {}
    on_gpu = torch.cuda.is_available()
    with passable_folder() as cache, Judge() as judge:
        os.environ.setdefault("WARPGRADE_CACHE", str(cache))
        for entry in ordered:
            if options.rows and entry.name not in options.rows:
                lines[entry.expected.row] = _row(before[entry.name]), before[entry.name][-1]
                continue
            lines[entry.expected.row] = _graded(judge, entry, before.get(entry.name), on_gpu=on_gpu)
            print(lines[entry.expected.row][0], flush=True)
    text = _table(chosen, lines)
    if options.output is not None:
        options.output.write_text(text)
    else:
        print(text)


def _cells_of(table: Path | None) -> dict[str, list[str]]:
    """Read the cells of an earlier table, by the name of the row."""
    if table is None or not table.exists():
        return {}
    rows = map(_cells, table.read_text().splitlines())
    return {cells[1].strip("`"): cells for cells in rows if len(cells) == _COLUMNS and cells[1].startswith("`")}


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def _graded(judge: Judge, entry: Entry, before: list[str] | None, *, on_gpu: bool) -> tuple[str, str]:
    """Give the row of the table and its state; without a GPU what needs one is as it was `before`."""
    expected = entry.expected
    if expected.device is DeviceKind.CUDA and not on_gpu and before is not None and before[3] != _NOT_GRADED:
        return _row(before), before[-1]
    if expected.device is DeviceKind.CUDA and not on_gpu:
        state = "not yet"
        cells = [_NOT_GRADED, _NOT_GRADED, _controlled(entry, on_gpu=False)]
        cells.append(_NEEDS_GPU if entry.name in BITES else "structure")
    else:
        verdict = judge.cheat(entry)
        state = verdict.state
        twin = judge.honest(entry)
        twin_text = "correct" if twin.status is Status.CORRECT else f"**{twin.status}**"
        needs_gpu = entry.expected.naive and entry.control_device == "cuda"
        by_gpu = needs_gpu and not on_gpu and before is not None
        controlled = before[5] if by_gpu else _controlled(entry, on_gpu=on_gpu)
        cells = [" ".join((f"`{verdict.status}`", verdict.code)).strip(), twin_text, controlled]
        cells.append(_mutated(judge, entry))
    return _row([str(expected.row), f"`{entry.name}`", expected.device.value, *cells, state]), state


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mutated(judge: Judge, entry: Entry) -> str:
    """Say whether the cheat passes once its invariant is switched off."""
    mutation = BITES.get(entry.name)
    if mutation is None:
        return "structure"
    return "**does not bite**" if judge.stopped(entry, mutation) else "bites"


def _controlled(entry: Entry, *, on_gpu: bool) -> str:
    if not entry.expected.naive:
        return "none"
    if entry.control_device == "cuda" and not on_gpu:
        return _NEEDS_GPU
    with tempfile.TemporaryDirectory() as folder:
        said = control(entry, entry.cheat, Path(folder))
    match said:
        case Accepted(accepted=True):
            return "yes"
        case Accepted():
            return "**no**"
        case _:
            return "not run (no Landlock)"


def _table(chosen: list[Entry], lines: dict[int, tuple[str, str]]) -> str:
    counts = Counter(state for _, state in lines.values())
    summary = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    rows = [lines[entry.expected.row][0] for entry in chosen]
    head = [f"| {' | '.join(_TITLES)} |", "|---" * len(_TITLES) + "|"]
    rows_of_rule: dict[str, list[str]] = {}
    for entry in chosen:
        rows_of_rule.setdefault(entry.expected.rule, []).append(f"`{entry.name}`")
    rules = [f"- {rule}: {', '.join(names)}." for rule, names in rows_of_rule.items()]
    holes = [f"- `{entry.name}`: {why}." for entry in chosen if (why := _missing(entry, lines[entry.expected.row][1]))]
    if waiting := [f"`{entry.name}`" for entry in chosen if _control_of(lines[entry.expected.row][0]) == _NEEDS_GPU]:
        holes.append(f"- {', '.join(waiting)}: the naive grader on a GPU.")
    at_the_judge = [
        f"| {name} | {each.attack} | {each.now} | {', '.join(_files(each.tests))} |" for name, each in attacks().items()
    ]
    parts = [
        _HEAD,
        f"{len(rows)} rows: {summary}.\n",
        "\n".join([*head, *rows]) + "\n",
        *(["## Cells that are missing\n", "\n".join(holes) + "\n"] if holes else []),
        "## Attacks on the judge\n",
        "Hostile cards, folders, frames and builds: attacks that are no wrong result of a submission.\n",
        "\n".join(["| | attack | answer | shown by |", "|---|---|---|---|", *at_the_judge]) + "\n",
        "## Rule that stops each row\n",
        "\n".join(rules) + "\n",
    ]
    return "\n".join(parts)


def _files(tests: list[str]) -> list[str]:
    """Return the files of tests, each once, in code spans."""
    return [f"`{file}`" for file in dict.fromkeys(test.partition("::")[0] for test in tests)]


def _control_of(line: str) -> str:
    """Return the cell of the naive grader."""
    return _cells(line)[5]


def _missing(entry: Entry, state: str) -> str:
    expected = entry.expected
    if expected.not_yet:
        return expected.not_yet
    not_graded = state == "not yet" and expected.device is DeviceKind.CUDA and not torch.cuda.is_available()
    return "a grade on a GPU" if not_graded else ""


if __name__ == "__main__":
    main()
