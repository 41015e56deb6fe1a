"""Several runs side by side, and the comparison of two, as text and documents."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from evaluator.catalog import natural
from evaluator.report.layout.markup import code_span
from evaluator.report.run.intervals import NOTHING, between, document_of, factor, percent, percentage
from evaluator.report.run.run_comparison import Comparison, Pair, VerdictChange, case_pairs, measured_differently
from evaluator.report.run.run_tables import (
    OF_WHOLE_LEVELS,
    TextTable,
    document,
    markdown_table,
    markdown_text,
    render_tables,
    title_of,
)
from evaluator.report.run.summary import CaseSample, RunSample, Section, Summary, WholeLevel
from evaluator.text import counted, one_line, significant

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


_MOST = 20
_CHANGES_OF_CASES = (VerdictChange.FASTER, VerdictChange.SLOWER, VerdictChange.BROKEN, VerdictChange.FIXED)


def comparison_document(comparison: Comparison, runs: Sequence[NamedRun], failed: list[str]) -> dict[str, Any]:
    """Return the document of `compare --json`."""
    return {
        "version": 1,
        "pairs": len(comparison.pairs),
        "timed": comparison.timed,
        "faster": document_of(comparison.faster),
        "broken": [_names(pair) for pair in comparison.broken],
        "mended": [_names(pair) for pair in comparison.mended],
        "p_broken": comparison.p_broken,
        "only_before": [{"problem": row.problem, "name": row.name} for row in comparison.only_before],
        "only_after": [{"problem": row.problem, "name": row.name} for row in comparison.only_after],
        "measured_differently": comparison.measured_differently,
        "submissions": [_names(pair) | _comparison(pair) for pair in comparison.pairs],
        "failed": failed,
        "runs": [{"name": run.name, "total": document_of(run.section.total)} for run in runs],
    }


def _names(pair: Pair[RunSample]) -> dict[str, Any]:
    before, after = pair
    return {"problem": before.problem, "name": before.name, "before": before.status, "after": after.status}


def _comparison(pair: Pair[RunSample]) -> dict[str, Any]:
    cases = [
        {
            "case": case.before.name,
            "axes": case.before.axes,
            "before": case.before.status,
            "after": case.after.status,
            "ratio": case.ratio,
            "change": case.change.value,
        }
        for case in case_pairs(pair)
    ]
    before, after = pair
    return {
        "ratio": pair.ratio,
        "measured_before": before.measured,
        "measured_after": after.measured,
        "cases": cases,
    }


def _speed_line(comparison: Comparison) -> str:
    faster = comparison.faster
    if faster is None:
        return "speed: no submission has a speedup in both runs"
    interval = "no interval: a card has none"
    if faster.low is not None and faster.high is not None:
        interval = f"95 %: {significant(faster.low)}x to {significant(faster.high)}x"
    return (
        f"second run {significant(faster.value)}x as fast, over {counted(comparison.timed, 'submission')} ({interval})"
    )


def summary_lines(comparison: Comparison) -> list[str]:
    """Return how many submissions are compared, how many verdicts are the same, and the relative speed."""
    lines = [f"{counted(len(comparison.pairs), 'submission')} in both runs"]
    for name, unpaired in (("first", comparison.only_before), ("second", comparison.only_after)):
        if unpaired:
            lines.append(f"{len(unpaired)} only in the {name} run, not compared")
    if comparison.pairs:
        # A missing card is no verdict.
        same = sum(before.status is not None and before.status is after.status for before, after in comparison.pairs)
        lines.append(f"same verdict: {same} of {len(comparison.pairs)}")
    lines.append(_speed_line(comparison))
    if comparison.measured_differently:
        lines.append(
            f"{comparison.measured_differently} of {counted(comparison.timed, 'ratio')}: measured differently in the "
            "two runs (windows or single calls, inputs cold or warm in L2, other cases)"
        )
    if (cases := _cases_line(comparison)) is not None:
        lines.append(cases)
    return lines


def _cases_line(comparison: Comparison) -> str | None:
    """Return in how many cases the second run is better and worse, and where it is slowest; None without cases."""
    cases = [(pair, case) for pair in comparison.pairs for case in case_pairs(pair)]
    if not cases:
        return None
    changes = Counter(case.change for _, case in cases)
    counts = [f"{change.value} in {changes[change]}" for change in _CHANGES_OF_CASES if changes[change]]
    text = f"cases: second run {', '.join(counts) or 'neither faster nor slower in any'} of {len(cases)}"
    timed = [(ratio, pair, case) for pair, case in cases if (ratio := case.ratio) is not None]
    if timed:
        slowest, pair, case = min(timed, key=lambda item: item[0])
        text = f"{text}, slowest {significant(slowest)}x at {case.before.axes or case.before.name}"
        text = f"{text} of {pair.before.problem}/{pair.before.name}" if len(comparison.pairs) > 1 else text
    return text


def _case_label(pair: Pair[RunSample], case: Pair[CaseSample]) -> str:
    axes = f" ({case.before.axes})" if case.before.axes not in ("", case.before.name) else ""
    return f"{pair.before.problem}/{pair.before.name} at case {case.before.name}{axes}"


def render_comparison(comparison: Comparison, runs: Sequence[NamedRun], console: "Console") -> None:
    """Print the rates of both runs, the summary, the changed verdicts, and the largest changes of speed."""
    from rich.text import Text

    render_tables(rates(runs), console)
    encoding = console.encoding

    def line(text: str, style: str = "") -> None:
        console.print(Text(one_line(text, 200, encoding), style), soft_wrap=True)

    for number, text in enumerate(summary_lines(comparison)):
        line(text, "" if number else "bold")
    for title, pairs, style in (("broken", comparison.broken, "red"), ("fixed", comparison.mended, "green")):
        for pair in pairs[:_MOST]:
            before, after = pair
            verdicts = f"{before.status_text} before, {after.status_text} now"
            line(f"{title}: {before.problem}/{before.name}: {verdicts}", style)
        if len(pairs) > _MOST:
            line(f"and {len(pairs) - _MOST} more {title}", style)
    changed = [(pair.ratio, pair) for pair in comparison.pairs if pair.ratio is not None]
    for ratio, pair in sorted(changed, key=lambda item: item[0])[:_MOST]:
        differently = "  measured differently" if measured_differently(pair) else ""
        line(f"{significant(ratio)}x  {pair.before.problem}/{pair.before.name}{differently}")
    changed_cases = [
        (pair, case) for pair in comparison.pairs for case in case_pairs(pair) if case.change is not VerdictChange.SAME
    ]
    for pair, case in sorted(changed_cases, key=lambda item: item[1].ratio or 0.0)[:_MOST]:
        ratio_text = "" if case.ratio is None else f"{significant(case.ratio)}x  "
        line(f"{ratio_text}{_case_label(pair, case)}: {case.change.value}")
    if len(changed_cases) > _MOST:
        line(f"and {len(changed_cases) - _MOST} more changed cases")
