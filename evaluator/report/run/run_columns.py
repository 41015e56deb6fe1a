"""Several runs beside each other: the rates of each run, and a table of problems by runs. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from evaluator.catalog import natural
from evaluator.report.layout.markup import code_span
from evaluator.report.run.intervals import NOTHING, between, factor, percent, percentage
from evaluator.report.run.run_tables import (
    OF_WHOLE_LEVELS,
    TextTable,
    document,
    markdown_table,
    markdown_text,
    numbers,
    render_tables,
    title_of,
)
from evaluator.report.run.summary import Section, Summary, WholeLevel
from evaluator.text import counted, one_line

if TYPE_CHECKING:
    from rich.console import Console


_LONGEST_HEAD = 16
_LONGEST_TITLE = 300
_INTERVAL = "95 % interval"
_FAST = (1.0, 2.0)
_FAST_NAMES = [f"fast_{p:g}" for p in _FAST]


class NamedRun(NamedTuple):
    """A run with the statistics of a device, and the quoted speedups of the correct submissions."""

    name: str
    section: Section
    speedups: list[float]


class Agreement(NamedTuple):
    """A problem, the result of each run, and the agreement of the runs.

    `kind` is `all correct`, `none correct`, or whether the share of correct samples is the `same` or `differs`.
    """

    problem: str
    results: list[str]
    kind: str


def runs_document(runs: Sequence[NamedRun]) -> dict[str, Any]:
    """Return the document of `report --json` for several runs."""
    return {"version": 1, "runs": [{"name": run.name} | document([run.section]) for run in runs]}


def totals_document(runs: Sequence[NamedRun]) -> list[dict[str, Any]]:
    """Return the rates of each run for `compare --json`."""
    return [{"name": run.name, "total": numbers(run.section.total)} for run in runs]


def rates(runs: Sequence[NamedRun]) -> list[TextTable]:
    """Return tables with a row for each run: shares of all samples, and on a device with a clock the speed."""
    if not runs:
        return []
    tables = [
        TextTable(
            "Correct", ["", "samples", "problems", "built", "correct", _INTERVAL], [_correct(run) for run in runs]
        )
    ]
    timed = any(run.section.device.timed for run in runs)
    if timed:
        header = ["", *_FAST_NAMES, "95 % of fast_1", "speedup if correct", _INTERVAL]
        tables.append(TextTable("Fast", header, [_speed(run) for run in runs]))
    if any(run.section.disputed for run in runs):
        header = ["", "correct", _INTERVAL, *(_FAST_NAMES if timed else [])]
        rows = [_by_benchmark(run)[: len(header)] for run in runs]
        benchmarks = {run.section.benchmark for run in runs if run.section.by_benchmark is not None}
        tables.append(
            TextTable(f"By {benchmarks.pop() if len(benchmarks) == 1 else 'the benchmark'}'s rule", header, rows)
        )
    levels = [
        (f"{run.name}: level {number}", level) for run in runs for number, level in run.section.whole_levels.items()
    ]
    if any(level.tried < level.problems for _, level in levels):
        header = ["", "tried", "correct", _INTERVAL, *(_FAST_NAMES if timed else [])]
        tables.append(
            TextTable(OF_WHOLE_LEVELS, header, [_whole_level_row(name, level)[: len(header)] for name, level in levels])
        )
    return tables


def by_problem(runs: Sequence[NamedRun]) -> list[Agreement]:
    """Return the results of all runs for each problem, in natural order.

    A single sample has its speedup or its status; several samples have the number of correct ones and the mean speedup.
    """
    problems = sorted({name for run in runs for name in run.section.problems}, key=natural)
    return [_agreement(name, [run.section.problems.get(name) for run in runs]) for name in problems]


def runs_markdown(runs: Sequence[NamedRun]) -> str:
    """Return the text of `report --markdown` for several runs."""
    lines = [f"## {markdown_text(heading(runs))}", ""]
    tables = [*rates(runs), _grid(runs)]
    for title, header, rows in tables:
        cells = [[code_span(row[0]), *row[1:]] for row in rows]
        names = [code_span(cell) if cell in {run.name for run in runs} else cell for cell in header]
        lines += [f"### {title}", "", *markdown_table(names, cells)]
    return "\n".join(lines)


def render_runs(runs: Sequence[NamedRun], console: "Console") -> None:
    """Print the report of several runs on a terminal."""
    from rich.text import Text

    console.print(Text(one_line(heading(runs), _LONGEST_TITLE, console.encoding), "bold"))
    render_tables(runs_tables(runs), console)


def runs_tables(runs: Sequence[NamedRun]) -> list[TextTable]:
    """Return all tables of `report` for several runs on a terminal."""
    grid = _grid(runs)
    return [*rates(runs), grid._replace(header=[one_line(cell, _LONGEST_HEAD) for cell in grid.header])]


def heading(runs: Sequence[NamedRun]) -> str:
    """Return the device and the number of runs."""
    devices = dict.fromkeys(title_of(run.section.device) for run in runs)
    return f"{' and '.join(devices)}: {counted(len(runs), 'run')}"


def _grid(runs: Sequence[NamedRun]) -> TextTable:
    header = ["", *(run.name for run in runs)]
    return TextTable("By problem", header, [[row.problem, *row.results] for row in by_problem(runs)])


def _agreement(problem: str, summaries: Sequence[Summary | None]) -> Agreement:
    shares = {0.0 if summary is None or summary.correct is None else summary.correct.value for summary in summaries}
    kinds = {1.0: "all correct", 0.0: "none correct"}
    kind = kinds.get(shares.pop(), "same") if len(shares) == 1 else "differs"
    return Agreement(problem, [NOTHING if summary is None else _result(summary) for summary in summaries], kind)


def _result(summary: Summary) -> str:
    speedup = "" if summary.speedup is None else factor(summary.speedup.value)
    if summary.samples == 1:
        return speedup or next(iter(summary.statuses))
    correct = 0.0 if summary.correct is None else summary.correct.value
    return f"{round(correct * summary.samples)}/{summary.samples} {speedup}".rstrip()


def _correct(run: NamedRun) -> list[str]:
    total = run.section.total
    counts = [str(total.samples), str(total.problems)]
    return [run.name, *counts, percent(total.built), percent(total.correct), between(total.correct, percentage)]


def _speed(run: NamedRun) -> list[str]:
    total = run.section.total
    fast = [percent(total.fast[p]) for p in _FAST]
    speedup = NOTHING if total.speedup is None else factor(total.speedup.value)
    return [run.name, *fast, between(total.fast[1.0], percentage), speedup, between(total.speedup, factor)]


def _by_benchmark(run: NamedRun) -> list[str]:
    total = (run.section.by_benchmark or run.section).total
    fast = [percent(total.fast[p]) for p in _FAST]
    return [run.name, percent(total.correct), between(total.correct, percentage), *fast]


def _whole_level_row(name: str, level: WholeLevel) -> list[str]:
    tried_text, fast = f"{level.tried} of {level.problems}", (percent(level.fast[p]) for p in _FAST)
    return [name, tried_text, percent(level.correct), between(level.correct, percentage), *fast]
