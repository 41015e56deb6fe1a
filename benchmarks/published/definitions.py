"""Each definition of some folders against itself: a submission with the reference's own text on the smallest workload.

    python -m benchmarks.published.definitions FOLDER... [--device cuda] [--size full] [--output FILE]

FOLDER holds definitions of SOL-ExecBench, or tasks of KernelBot, each in a folder of its own. The table counts those
that load and those whose own reference is `correct`, and names the others with the reason. A repeated command with the
same --output grades what the file lacks.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from evaluator.catalog import list_problems
from evaluator.records import Problem, Scorecard
from warpgrade import Grader

_MOST_OF_MESSAGE = 160
_CELL = str.maketrans({"|": "\\|", "\n": " "})


def own_submission(problem: Problem) -> str:
    """Return a submission that computes what the reference computes, with the reference's own text."""
    return f"{problem.source}\n\nModelNew = Model\n"


def row_of(card: Scorecard) -> dict[str, Any]:
    """Return the result of a grade: status, code and message, calls, and the seconds of the grade."""
    reason = card.reason
    return {
        "status": card.status.value,
        "code": "" if reason is None else reason.code,
        "message": "" if reason is None else reason.message,
        "calls": len(card.checks),
        "speedup": None if card.timing is None else card.timing.speedup,
        "benchmark_correct": card.benchmark_correct,
        "wall_s": round(card.wall_s, 1),
    }


def table(rows: dict[str, dict[str, Any]], broken: list[str]) -> Iterator[str]:
    """Yield the lines of the table."""
    counts = Counter(row["status"] for row in rows.values())
    yield f"{len(rows) + len(broken)} definitions, {len(rows)} load, {counts['correct']} are correct against themselves"
    yield from ("", "| verdict | definitions |", "|---|---|")
    yield from (f"| `{status}` | {count} |" for status, count in counts.most_common())
    yield from ("", "| definition | verdict | reason |", "|---|---|---|")
    for name, row in rows.items():
        if row["status"] != "correct":
            message = row["message"][:_MOST_OF_MESSAGE].translate(_CELL)
            yield f"| {name} | `{row['status']}` {row['code']} | {message} |"
    yield from (f"| | does not load | {message[:_MOST_OF_MESSAGE].translate(_CELL)} |" for message in broken)


@click.command(help=__doc__)
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--device", default="cpu", show_default=True)
@click.option("--size", type=click.Choice(["small", "full"]), default="small", show_default=True)
@click.option("--mode", type=click.Choice(["check", "full"]), default="check", show_default=True)
@click.option("--limit-s", type=float, default=20.0, show_default=True, help="Seconds for a grade.")
@click.option("--output", type=click.Path(path_type=Path), help="File with a line for each grade.")
def main(*, folders: tuple[Path, ...], device: str, size: str, mode: str, limit_s: float, output: Path | None) -> None:
    """Grade, and print the table."""
    lines = output.read_text().splitlines() if output is not None and output.exists() else []
    rows = {row.pop("name"): row for row in map(json.loads, lines)}
    broken: list[str] = []
    for folder in folders:
        listing = list_problems(folder)
        broken += [str(error) for error in listing.broken]
        with Grader(
            device=device, size=size, mode=mode, deadline_s=limit_s, problems=folder, jobs=1, ready=False
        ) as grader:
            for problem in listing.problems:
                name = problem.name if len(folders) == 1 else f"{folder.name}/{problem.name}"
                if name in rows:
                    continue
                row = row_of(grader.submit(problem.name, own_submission(problem)).result())
                rows[name] = row
                click.echo(f"{name} {problem.title}: {row['status']} {row['code']}", err=True)
                if output is not None:
                    with output.open("a") as file:
                        file.write(json.dumps({"name": name, **row}) + "\n")
    click.echo("\n".join(table(rows, broken)))


if __name__ == "__main__":
    main()
