"""Rates by KernelBench's rule beside Warpgrade's, and the submissions on which the two disagree."""

from collections.abc import Iterator, Sequence
from typing import Any

from evaluator.records import Status
from evaluator.report.run.estimates import NOTHING, estimate_document, percent, percentage
from evaluator.report.run.summary import ByKernelBench, RunSample, Section, Summary, WholeLevel

Rows = tuple[list[str], list[list[str]]]
"""Header and rows of a table."""


def remark_of_both(section: Section) -> Iterator[str]:
    """Yield the numbers of correct submissions by both rules, if KernelBench's rule has an opinion."""
    if section.total.kernelbench is None:
        return
    ours = section.total.statuses.get(Status.CORRECT.value, 0)
    accepted = [sample.correct_by_kernelbench for sample in section.disputed]
    untimed = " Submissions that KernelBench's rule alone accepts were not timed: its fast_p is a range."
    theirs = ours + accepted.count(True) - accepted.count(False)
    numbers = f"Correct by KernelBench's rule: {theirs}, by Warpgrade's: {ours}."
    yield numbers + (untimed if any(accepted) and section.device.timed else "")


def rates_by_both(section: Section, thresholds: Sequence[float]) -> Rows:
    """Return the shares of correct and fast submissions by each rule: all, by level, and of levels partly tried."""
    groups: list[tuple[str, Summary | WholeLevel]] = [("all", section.total)]
    if len(section.levels) > 1:
        groups += [(f"level {number}", summary) for number, summary in section.levels.items()]
    whole = section.whole_levels.items()
    groups += [(f"level {number}, all", level) for number, level in whole if level.tried < level.problems]
    rows = []
    for name, group in groups:
        if (theirs := group.kernelbench) is not None:
            fast = [(theirs.fast[p], group.fast[p]) for p in thresholds]
            rows.append([name, "KernelBench", percent(theirs.correct), *(from_to(*ends) for ends, _ in fast)])
            rows.append([name, "Warpgrade", percent(group.correct), *(percent(share) for _, share in fast)])
    return ["", "rule", "correct", *(f"fast_{p:g}" for p in thresholds)], rows


def from_to(least: float, most: float) -> str:
    """Format a share of which the ends are known."""
    return percentage(least) if least == most else f"{least * 100:.1f} to {percentage(most)}"


def disputed_rows(samples: Sequence[RunSample], most: int) -> Rows:
    """Return the verdicts of both rules on the first `most` disputed submissions, and the number of the others."""
    rows = [
        [
            f"{sample.problem}/{sample.name}",
            "correct" if sample.correct_by_kernelbench else "wrong",
            sample.status_text,
            sample.reason or NOTHING,
        ]
        for sample in samples[:most]
    ]
    if len(samples) > most:
        rows.append([f"and {len(samples) - most} more; --json lists all", "", "", ""])
    return ["", "KernelBench", "Warpgrade", "reason"], rows


def kernelbench_document(shares: ByKernelBench | None) -> dict[str, Any] | None:
    """Return the document of the shares by KernelBench's rule."""
    if shares is None:
        return None
    return {"correct": estimate_document(shares.correct), "fast": {f"{p:g}": ends for p, ends in shares.fast.items()}}


def disputed_document(sample: RunSample) -> dict[str, Any]:
    """Return the document of a submission on which the rules disagree."""
    names = {"problem": sample.problem, "name": sample.name, "status": sample.status_text, "reason": sample.reason}
    return names | {"kernelbench_correct": sample.correct_by_kernelbench}
