"""Comparison of two runs on screen and as a document."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evaluator.report.run.run_columns import NamedRun, rates, totals_document
from evaluator.report.run.run_comparison import Comparison, SubmissionPair, VerdictChange
from evaluator.report.run.run_tables import render_tables
from evaluator.report.run.summary import MISSING
from evaluator.text import counted, one_line, significant

if TYPE_CHECKING:
    from rich.console import Console

_MOST = 20


def comparison_document(comparison: Comparison, runs: Sequence[NamedRun], failed: list[str]) -> dict[str, Any]:
    """Return the document of `compare --json`."""
    faster = comparison.faster
    return {
        "version": 1,
        "pairs": len(comparison.pairs),
        "timed": comparison.timed,
        "faster": None if faster is None else faster._asdict(),
        "broken": [_names(pair) for pair in comparison.broken],
        "mended": [_names(pair) for pair in comparison.mended],
        "p_broken": comparison.p_broken,
        "only_before": [{"problem": row.problem, "name": row.name} for row in comparison.only_before],
        "only_after": [{"problem": row.problem, "name": row.name} for row in comparison.only_after],
        "measured_differently": comparison.measured_differently,
        "submissions": [_names(pair) | _measured(pair) for pair in comparison.pairs],
        "failed": failed,
        "runs": totals_document(runs),
    }


def _names(pair: SubmissionPair) -> dict[str, Any]:
    before, after = pair
    return {
        "problem": before.problem,
        "name": before.name,
        "before": before.status.value if before.status else None,
        "after": after.status.value if after.status else None,
    }


def _measured(pair: SubmissionPair) -> dict[str, Any]:
    """Return the ratio of speedups, and how each speedup was measured."""
    sides = {"measured_before": pair.before.measured, "measured_after": pair.after.measured}
    names = ("reference_calls", "submission_calls", "l2")
    measured = {
        name: None if measurement is None else dict(zip(names, measurement, strict=True))
        for name, measurement in sides.items()
    }
    return {"ratio": pair.ratio, **measured, "cases": [_case_document(case) for case in pair.cases]}


def _case_document(case: SubmissionPair) -> dict[str, Any]:
    names = _names(case)
    return {
        "case": names["name"],
        "before": names["before"],
        "after": names["after"],
        "ratio": case.ratio,
        "change": case.change.value,
    }


def _is_same_verdict(pair: SubmissionPair) -> bool:
    """Whether both runs have the same verdict. A missing card is no verdict."""
    return pair.before.status is not None and pair.before.status is pair.after.status


def _speed(comparison: Comparison) -> str:
    """Format the relative speed of the second run."""
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
        lines.append(f"same verdict: {sum(map(_is_same_verdict, comparison.pairs))} of {len(comparison.pairs)}")
    lines.append(_speed(comparison))
    if comparison.measured_differently:
        lines.append(
            f"{comparison.measured_differently} of {counted(comparison.timed, 'ratio')}: measured differently in the "
            "two runs (windows or single calls, inputs cold or warm in L2)"
        )
    return lines


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
            before, after = (side.status or MISSING for side in pair)
            line(f"{title}: {pair.before.problem}/{pair.before.name}: {before} before, {after} now", style)
        if len(pairs) > _MOST:
            line(f"and {len(pairs) - _MOST} more {title}", style)
    changed = [(pair.ratio, pair) for pair in comparison.pairs if pair.ratio is not None]
    for ratio, pair in sorted(changed, key=lambda item: item[0])[:_MOST]:
        differently = "  measured differently" if pair.measured_differently else ""
        line(f"{significant(ratio)}x  {pair.before.problem}/{pair.before.name}{differently}")
    changed_cases = [
        (pair, case) for pair in comparison.pairs for case in pair.cases if case.change is not VerdictChange.SAME
    ]
    for pair, case in sorted(changed_cases, key=lambda item: item[1].ratio or 0.0)[:_MOST]:
        ratio_text = "" if case.ratio is None else f"{significant(case.ratio)}x  "
        line(f"{ratio_text}{pair.before.problem}/{pair.before.name} at case {case.before.name}: {case.change.value}")
    if len(changed_cases) > _MOST:
        line(f"and {len(changed_cases) - _MOST} more changed cases")
