"""The verdicts of runs of published kernels, as tables in Markdown.

    python -m benchmarks.published.verdicts RUN [RUN ...] [--against RUN]

The first table counts verdicts, the second lists each kernel that is not `correct` in all its grades, with codes and a
message. Copies of a kernel (`arrange --copies`) count as grades of one kernel. `--against` lists the kernels with other
verdicts in another run, for instance on another device.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from evaluator.files.card_files import read_card
from evaluator.records import Scorecard, Status

_MOST_OF_MESSAGE = 140
_CELL = str.maketrans({"|": "\\|", "\n": " "})


class Grades(NamedTuple):
    """Verdicts of one kernel, with their codes; `largest` is the largest share of the allowed error that passed."""

    verdicts: Counter[tuple[Status, str]]
    message: str
    largest: float | None

    @property
    def total(self) -> int:
        """Number of grades."""
        return self.verdicts.total()

    @property
    def correct(self) -> int:
        """Number of grades with the verdict `correct`."""
        return sum(count for (status, _), count in self.verdicts.items() if status is Status.CORRECT)


Kernels = dict[tuple[str, str], Grades]
"""Grades by problem and name of the kernel."""


def kernels_of(cards: Iterable[Scorecard]) -> Kernels:
    """Return the grades of each kernel."""
    own: defaultdict[tuple[str, str], list[Scorecard]] = defaultdict(list)
    for card in cards:
        name, _, copy = card.submission.name.rpartition(".")
        own[card.problem.name, name if name and copy.isdecimal() else card.submission.name].append(card)
    return {kernel: _grades(own[kernel]) for kernel in sorted(own)}


def _grades(cards: list[Scorecard]) -> Grades:
    reasons = [card.reason for card in cards if card.reason is not None]
    ratios = [
        tensor.error_ratio
        for card in cards
        if card.status is Status.CORRECT
        for check in card.checks
        for tensor in check.tensors
        if tensor.error_ratio is not None
    ]
    verdicts = Counter((card.status, "" if card.reason is None else card.reason.code) for card in cards)
    return Grades(verdicts, reasons[0].message if reasons else "", max(ratios, default=None))


def table(kernels: Mapping[tuple[str, str], Grades]) -> Iterator[str]:
    """Yield the lines of both tables."""
    counts: Counter[Status] = Counter()
    for grades in kernels.values():
        counts += Counter(status for status, _ in grades.verdicts.elements())
    steady = sum(grades.correct == grades.total for grades in kernels.values())
    largest = max((grades.largest for grades in kernels.values() if grades.largest is not None), default=None)
    yield f"{len(kernels)} kernels, {counts.total()} grades; kernels correct in every grade: {steady}"
    if largest is not None:
        yield f"Largest error of a correct grade: {largest:.2f} of the allowed one."
    yield from ("", "| verdict | grades |", "|---|---|")
    yield from (f"| `{status.value}` | {counts[status]} |" for status in Status if counts[status])
    rows = [(kernel, grades) for kernel, grades in kernels.items() if grades.correct < grades.total]
    if rows:
        yield from ("", "| problem | kernel | correct | others | message |", "|---|---|---|---|---|")
    for (problem, name), grades in rows:
        message = grades.message[:_MOST_OF_MESSAGE].translate(_CELL)
        yield f"| {problem} | {name} | {grades.correct} of {grades.total} | {_others(grades)} | {message} |"


def _others(grades: Grades) -> str:
    others = [
        f"{count} x {code or status.value}"
        for (status, code), count in grades.verdicts.most_common()
        if status is not Status.CORRECT
    ]
    return ", ".join(others)


def differences(kernels: Kernels, others: Kernels) -> Iterator[str]:
    """Yield the lines of a table of the kernels of both runs whose verdicts differ."""
    both = [kernel for kernel in kernels if kernel in others]
    rows = [kernel for kernel in both if set(kernels[kernel].verdicts) != set(others[kernel].verdicts)]
    yield f"{len(both)} kernels are in both runs; with other verdicts or codes: {len(rows)}"
    if rows:
        yield from ("", "| problem | kernel | here | in the other run |", "|---|---|---|---|")
    for problem, name in rows:
        here, there = (_all(each[problem, name]) for each in (kernels, others))
        yield f"| {problem} | {name} | {here} | {there} |"


def _all(grades: Grades) -> str:
    return ", ".join(sorted(f"{status.value} {code}".strip() for status, code in grades.verdicts))


def read(runs: Iterable[Path]) -> Kernels:
    """Return the kernels of the cards in `runs`."""
    return kernels_of(read_card(path) for run in runs for path in sorted((run / "cards").rglob("*.json")))


@click.command(help=__doc__)
@click.argument("runs", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(runs: tuple[Path, ...], against: Path | None) -> None:
    """Print the tables."""
    kernels = read(runs)
    click.echo("\n".join(table(kernels)))
    if against is not None:
        click.echo("\n" + "\n".join(differences(kernels, read([against]))))


if __name__ == "__main__":
    main()
