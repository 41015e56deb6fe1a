"""Results of a run's submissions by case: how many are right and faster, and the usual speedup. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from evaluator.records import Status
from evaluator.report.run.intervals import NOTHING
from evaluator.text import significant


class CaseSample(NamedTuple):
    """A case of a submission's card; the fields are those of `CaseResult`. `status` is None for a case left out."""

    name: str
    status: Status | None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None


class CaseSummary(NamedTuple):
    """A case of a problem over all submissions.

    `faster` counts those whose interval lies above 1. `speedup` is the geometric mean of the quoted speedups.
    """

    problem: str
    case: str
    graded: int
    correct: int
    faster: int
    speedup: float | None


def case_summaries(samples: Iterable[tuple[str, Sequence[CaseSample]]]) -> list[CaseSummary]:
    """Return a summary of each case, from the problem and the cases of each submission."""
    by_case: dict[tuple[str, str], list[CaseSample]] = defaultdict(list)
    for problem, cases in samples:
        for case in cases:
            by_case[problem, case.name].append(case)
    return [_summary(problem, name, cases) for (problem, name), cases in by_case.items()]


def case_table(summaries: Sequence[CaseSummary]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table of the cases."""
    rows = [
        [
            f"{each.problem}, {each.case}",
            f"{each.correct} of {each.graded}",
            str(each.faster),
            NOTHING if each.speedup is None else f"{significant(each.speedup)}x",
        ]
        for each in summaries
    ]
    return ["", "correct", "faster", "speedup"], rows


def case_documents(summaries: Sequence[CaseSummary]) -> list[dict[str, Any]]:
    """Return the summaries for JSON."""
    return [each._asdict() for each in summaries]


def _summary(problem: str, name: str, cases: Sequence[CaseSample]) -> CaseSummary:
    graded = [case for case in cases if case.status is not None]
    right = [case for case in graded if case.status is Status.CORRECT]
    logs = [math.log(case.speedup) for case in right if case.speedup is not None and case.speedup > 0]
    return CaseSummary(
        problem=problem,
        case=name,
        graded=len(graded),
        correct=len(right),
        faster=sum((case.speedup_low or 0.0) > 1 for case in right),
        speedup=math.exp(math.fsum(logs) / len(logs)) if logs else None,
    )
