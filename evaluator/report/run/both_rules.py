"""Rates by the benchmark's rule beside Warpgrade's, and the disputed submissions."""

from collections.abc import Iterator, Sequence
from typing import Any

from evaluator.records import Status
from evaluator.report.run.intervals import NOTHING, percent
from evaluator.report.run.summary import RunSample, Section, Summary, WholeLevel

Rows = tuple[list[str], list[list[str]]]
"""Header and rows of a table."""


def remark_of_both(section: Section) -> Iterator[str]:
    """Yield the numbers of correct submissions by both rules, if the benchmark's rule has an opinion."""
    if section.by_benchmark is not None:
        theirs, ours = (each.total.statuses.get(Status.CORRECT.value, 0) for each in (section.by_benchmark, section))
        yield f"Correct by {section.benchmark}'s rule: {theirs}, by Warpgrade's: {ours}."
    if section.device.timed and any(not sample.correct for sample in section.disputed):
        yield f"Submissions that {section.benchmark}'s rule alone accepts were not timed: its fast_p is a lower bound."


def rates_by_both(ours: Section, thresholds: Sequence[float]) -> Rows:
    """Return the shares of correct and fast submissions by each rule: all, by level, and of levels partly tried."""
    theirs = ours.by_benchmark or ours
    groups: list[tuple[str, Summary | WholeLevel, Summary | WholeLevel]] = [("all", theirs.total, ours.total)]
    if len(ours.levels) > 1:
        groups += [(f"level {number}", theirs.levels[number], level) for number, level in ours.levels.items()]
    for number, level in ours.whole_levels.items():
        if level.tried < level.problems:
            groups.append((f"level {number}, all", theirs.whole_levels[number], level))
    rows = [
        [name, rule, percent(rates.correct), *(percent(rates.fast[p]) for p in thresholds)]
        for name, *both in groups
        for rule, rates in zip((ours.benchmark, "Warpgrade"), both, strict=True)
    ]
    return ["", "rule", "correct", *(f"fast_{p:g}" for p in thresholds)], rows


def disputed_rows(section: Section, most: int) -> Rows:
    """Return the verdicts of both rules on the first `most` disputed submissions, and the number of further ones."""
    samples = section.disputed
    rows = [
        [
            f"{sample.problem}/{sample.name}",
            "wrong" if sample.correct else "correct",
            sample.status_text,
            sample.reason or NOTHING,
        ]
        for sample in samples[:most]
    ]
    if len(samples) > most:
        rows.append([f"and {len(samples) - most} more; --json lists all", "", "", ""])
    return ["", section.benchmark, "Warpgrade", "reason"], rows


def disputed_document(sample: RunSample) -> dict[str, Any]:
    """Return the document of a disputed submission."""
    names = {"problem": sample.problem, "name": sample.name, "status": sample.status_text, "reason": sample.reason}
    return names | {"benchmark_correct": not sample.correct}
