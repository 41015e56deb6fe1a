"""The cases of a card as text: a sentence about all, and a row for each. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from evaluator.records import CaseResult, Score, Scorecard, Status
from evaluator.text import counted, one_line, ratio, significant

_AXES = 80
_SIZES_OF_EMULATOR = 2


class CaseRow(NamedTuple):
    """A case as text: name, axes that differ between the cases, weight (empty if all weigh the same), and result."""

    name: str
    axes: str
    weight: str
    result: str


def cases_sentence(cases: Sequence[CaseResult], times: str = "x") -> str:
    """Return how many cases are right and faster, and the slowest; empty without cases.

    Faster is a case whose interval lies above 1.

    >>> from evaluator.records import Status
    >>> fast = CaseResult("a", {"M": 16}, 1.0, Status.CORRECT, None, None, 2.0, 1.9, 2.1, 1.0, 2.0)
    >>> slow = CaseResult("b", {"M": 1}, 1.0, Status.CORRECT, None, None, 0.7, 0.6, 0.8, 1.0, 0.7)
    >>> cases_sentence([fast, slow])
    'faster in 1 of 2 cases, slowest 0.700 x at M = 1'
    """
    if not cases:
        return ""
    graded = [case for case in cases if case.status is not None]
    wrong = [case for case in graded if case.status is not Status.CORRECT]
    timed = [case for case in graded if case.is_timed and case.median_ms]
    parts = []
    if wrong:
        parts.append(f"not correct in {len(wrong)} of {counted(len(graded), 'case')}")
    if timed:
        faster = sum((case.speedup_low or 0.0) > 1 for case in timed)
        slowest = min(timed, key=_speedup_of)
        parts.append(f"faster in {faster} of {counted(len(timed), 'case')}")
        parts.append(f"slowest {ratio(_speedup_of(slowest))} {times} at {axes_text(slowest, cases)}")
    elif not wrong:
        parts.append(f"right in {counted(len(graded), 'case')}")
    left_out = len(cases) - len(graded)
    return ", ".join([*parts, *([f"{left_out} left out"] if left_out else [])])


def axes_text(case: CaseResult, cases: Sequence[CaseResult]) -> str:
    """Return the axes of a case that differ between `cases`; the name of the case where none does."""
    differing = [name for name, value in case.axes.items() if any(each.axes.get(name) != value for each in cases)]
    text = ", ".join(f"{name} = {case.axes[name]}" for name in differing)
    return one_line(text, _AXES) if text else case.name


def case_rows(cases: Sequence[CaseResult], times: str = "x") -> list[CaseRow]:
    """Return a row for each case."""
    is_weighted = len({case.weight for case in cases}) > 1
    return [
        CaseRow(
            case.name,
            axes_text(case, cases),
            f"weight {case.weight:g}" if is_weighted else "",
            _result(case, times),
        )
        for case in cases
    ]


def case_lines(cases: Sequence[CaseResult], times: str = "x") -> list[str]:
    """Return an aligned line for each case."""
    rows = case_rows(cases, times)
    names, axes = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    lines = (f"{row.name:<{names}}  {row.axes:<{axes}}  {row.result}" for row in rows)
    return [f"{line}  {row.weight}".rstrip() for line, row in zip(lines, rows, strict=True)]


def score_text(score: Score, times: str = "x") -> str:
    """Return the score with its interval."""
    low, high = score.speedup_low, score.speedup_high
    between = "unbounded"
    if low is not None and high is not None:
        between = f"between {ratio(low)} and {ratio(high)} {times}"
    elif low is not None:
        between = f"above {ratio(low)} {times}"
    mean = f"the weighted geometric mean of {counted(score.cases, 'case')}"
    if score.speedup is None:
        return f"not quoted: {mean} is {between}"
    return f"{significant(score.speedup)} {times}, {between} (95 % sure), {mean}"


def shows_cases(card: Scorecard) -> bool:
    """Return whether the cases are more than the two sizes of a grade on the emulator, which the verdict names."""
    return len(card.cases) > _SIZES_OF_EMULATOR or card.score is not None


def _speedup_of(case: CaseResult) -> float:
    return (case.reference_median_ms or 0.0) / case.median_ms if case.median_ms else 0.0


def _result(case: CaseResult, times: str) -> str:
    if case.status is None:
        return one_line(f"left out: {case.message or ''}", _AXES)
    if case.status is not Status.CORRECT:
        return one_line(f"{case.status.value.replace('_', ' ')} {case.code or ''}".strip(), _AXES)
    if not case.is_timed:
        return "right" if not case.hidden else "right, hidden"
    if case.speedup is None:
        return "right, speedup not quoted"
    between = ""
    if case.speedup_low is not None and case.speedup_high is not None:
        between = f" ({ratio(case.speedup_low)} to {ratio(case.speedup_high)})"
    return f"{significant(case.speedup)} {times}{between}"
