"""Times of a card and of cases, as text.

Only numbers come from the card: the texts need no quotation.
"""

from collections.abc import Collection, Iterator, Sequence
from statistics import median_low
from typing import NamedTuple

from evaluator.records import (
    CallKind,
    CaseResult,
    Clocks,
    L2Inputs,
    Samples,
    Score,
    Scorecard,
    SizeName,
    Status,
    Timing,
)
from evaluator.text import counted, duration, one_line, ratio, significant

_MIB = 1 << 20
_MOST = 1 << 50
"""Limit of numbers from a card. A forged card may have a number of 400 digits, too large for a float."""
_ALIKE_MHZ = 15
"""A step of the clock: clocks within a step count as equal."""


def measurement(card: Scorecard, micro: str = "µ") -> list[str]:
    """Return a phrase about each circumstance of the times; none without times."""
    timing = card.timing
    if timing is None:
        return []
    lines = (calls_line(timing), inputs_line(card.l2), host_line(timing, micro), clocks_line(timing))
    return [line for line in lines if line is not None]


def measured(card: Scorecard, micro: str = "µ") -> str:
    """Return the phrases of `measurement` as one."""
    return "; ".join(measurement(card, micro))


def calls_line(timing: Timing) -> str:
    """Return the kind of calls of each side."""
    if not timing.mixes_kinds:
        return f"both sides in {_calls(timing.submission.kind)}"
    return (
        f"the reference in {_calls(timing.reference_kind)}, the submission in {_calls(timing.submission.kind)}; the "
        "interval includes the larger error of single calls"
    )


def _calls(kind: CallKind) -> str:
    return "windows of calls" if kind is CallKind.WINDOWS else "single calls"


def samples_of(runs: Sequence[Samples]) -> str:
    """Return number and kind of the samples of a side's runs."""
    windows = [run.windows for run in runs if run.windows is not None and run.kind is CallKind.WINDOWS]
    count = sum(len(run.samples_ms) for run in runs)
    if not windows:
        return counted(count, "verified call")
    calls = [_number(number) for window in windows for number in window.calls]
    least, most = min(calls, default=0), max(calls, default=0)
    return f"{counted(count, 'window')} of {least if least == most else f'{least} to {most}'} verified calls"


def _number(value: int) -> int:
    return max(0, min(value, _MOST))


def inputs_line(l2: L2Inputs | None) -> str | None:
    """Return the state of the inputs in the L2 cache. Other devices and older cards have none."""
    if l2 is None:
        return None
    limit = "" if l2.limit_bytes is None else f", at most {_number(l2.limit_bytes) / _MIB:.3g} MiB a call"
    return f"inputs {l2.rule.value} in L2{limit}"


def host_line(timing: Timing, micro: str = "µ") -> str | None:
    """Return both times of a host-bound side; None if no side is host-bound."""
    side, usual_ms = timing.submission, timing.reference_launch_ms
    if not side.is_host_bound:
        return _host_of_the_reference(timing, micro) if timing.is_host_bound else None
    if side.waits_for_gpu or side.launch_ms is None:
        return "host-bound: forward waits for the GPU, so its time includes the host's"
    text = f"host-bound: GPU {duration(side.median_ms, micro)} a call, host {duration(side.launch_ms, micro)}"
    return text if usual_ms is None else f"{text}; the reference's host {duration(usual_ms, micro)}"


def _host_of_the_reference(timing: Timing, micro: str) -> str:
    """Return both times of the reference, if the reference alone is host-bound."""
    host_ms = timing.reference_launch_ms
    waits = timing.reference_before.waits_for_gpu or timing.reference_after.waits_for_gpu
    if waits or host_ms is None:
        return "host-bound: the reference's forward waits for the GPU, so its time includes the host's"
    gpu = duration(timing.reference_median_ms, micro)
    return f"host-bound: the reference's GPU {gpu} a call, its host {duration(host_ms, micro)}"


def clocks_line(timing: Timing) -> str | None:
    """Return the GPU's clock during both sides, with the number of reduced readings; None for a card without clocks."""
    sides = (
        ("reference", [timing.reference_before.clocks, timing.reference_after.clocks]),
        ("submission", [timing.submission.clocks]),
    )
    clocks_by_side = {side: [clocks for clocks in runs if clocks is not None and clocks.sm_mhz] for side, runs in sides}
    if not all(clocks_by_side.values()):
        return None
    mhz = {
        side: median_low([_number(value) for clocks in runs for value in clocks.sm_mhz])
        for side, runs in clocks_by_side.items()
    }
    reference_mhz, submission_mhz = mhz.values()
    alike = abs(reference_mhz - submission_mhz) <= _ALIKE_MHZ
    clock = f"{submission_mhz} MHz"
    mhz_text = clock if alike else f"{reference_mhz} MHz in the reference's calls, {clock} in the submission's"
    return "; ".join([f"GPU clock {mhz_text}", *_reduced(clocks_by_side)])


def _reduced(clocks_by_side: dict[str, list[Clocks]]) -> Iterator[str]:
    for side, runs in clocks_by_side.items():
        looks = sum(len(clocks.sm_mhz) for clocks in runs)
        if reduced := sum(max(clocks.throttled.values(), default=0) for clocks in runs):
            yield f"the driver reduced it in {min(_number(reduced), looks)} of {looks} readings of the {side}"


_AXES = 80
_SIZES_OF_EMULATOR = 2


class CaseRow(NamedTuple):
    """A case as text: name, axes that differ between the cases, weight (empty if all weigh the same), and result.

    `reference` and `submission` are the times of a call; empty for a case without times.
    """

    name: str
    axes: str
    weight: str
    result: str
    reference: str = ""
    submission: str = ""


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
        parts.append(f"slowest {ratio(_speedup_of(slowest))} {times} at {axes_text(slowest, differing_axes(cases))}")
    elif not wrong:
        parts.append(f"right in {counted(len(graded), 'case')}")
    left_out = len(cases) - len(graded)
    return ", ".join([*parts, *([f"{left_out} left out"] if left_out else [])])


def differing_axes(cases: Sequence[CaseResult]) -> frozenset[str]:
    """Return the names of the axes missing in some cases, or with other values in some."""
    first = cases[0].axes if cases else {}
    shared = {name for name, value in first.items() if all(case.axes.get(name) == value for case in cases)}
    return frozenset(name for case in cases for name in case.axes if name not in shared)


def axes_text(case: CaseResult, differing: Collection[str]) -> str:
    """Return the axes of a case among `differing`; without any, the name of the case."""
    text = ", ".join(f"{name} = {value}" for name, value in case.axes.items() if name in differing)
    return one_line(text, _AXES) if text else case.name


def case_rows(cases: Sequence[CaseResult], times: str = "x") -> list[CaseRow]:
    """Return a row for each case."""
    is_weighted = len({case.weight for case in cases}) > 1
    differing = differing_axes(cases)
    return [
        CaseRow(
            case.name,
            axes_text(case, differing),
            f"{case.weight:g}" if is_weighted else "",
            _result(case, times),
            *_times_of(case),
        )
        for case in cases
    ]


def case_lines(cases: Sequence[CaseResult], times: str = "x") -> list[str]:
    """Return an aligned line for each case."""
    rows = case_rows(cases, times)
    names, axes = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    lines = (f"{row.name:<{names}}  {row.axes:<{axes}}  {row.result}" for row in rows)
    return [
        f"{line}  weight {row.weight}" if row.weight else line.rstrip() for line, row in zip(lines, rows, strict=True)
    ]


def interval_text(low: float | None, high: float | None, times: str) -> str:
    """Return the interval of a speedup. Without a lower end, nothing is known.

    >>> interval_text(1.5, 2.0, "x"), interval_text(1.5, None, "x"), interval_text(None, None, "x")
    ('between 1.50 and 2.00 x', 'above 1.50 x', 'unbounded')
    """
    if low is None:
        return "unbounded"
    return f"above {ratio(low)} {times}" if high is None else f"between {ratio(low)} and {ratio(high)} {times}"


def score_text(score: Score, times: str = "x") -> str:
    """Return the score with its interval."""
    between = interval_text(score.speedup_low, score.speedup_high, times)
    mean = f"the weighted geometric mean of {counted(score.cases, 'case')}"
    if score.speedup is None:
        return f"not quoted: {mean} is {between}"
    return f"{significant(score.speedup)} {times}, {between} (95 % sure), {mean}"


def shows_cases(card: Scorecard) -> bool:
    """Return whether the cases are more than the two sizes of a grade on the emulator, which the verdict names."""
    listed = any(case.name not in set(SizeName) and not case.hidden for case in card.cases)
    return listed or len(card.cases) > _SIZES_OF_EMULATOR or card.score is not None


def _speedup_of(case: CaseResult) -> float:
    return (case.reference_median_ms or 0.0) / case.median_ms if case.median_ms else 0.0


def _times_of(case: CaseResult) -> tuple[str, str]:
    if case.reference_median_ms is None or case.median_ms is None:
        return "", ""
    return duration(case.reference_median_ms), duration(case.median_ms)


def _result(case: CaseResult, times: str) -> str:
    if case.status is None:
        return one_line(f"left out: {case.message or ''}", _AXES)
    if case.status is not Status.CORRECT:
        return one_line(f"{case.status.value.replace('_', ' ')} {case.code or ''}".strip(), _AXES)
    if not case.is_timed:
        return "right" if not case.hidden else "right, hidden"
    between = ""
    if case.speedup_low is not None:
        between = f"above {ratio(case.speedup_low)}"
        if case.speedup_high is not None:
            between = f"{ratio(case.speedup_low)} to {ratio(case.speedup_high)}"
    if case.speedup is None:
        return f"right, not quoted: {between} {times}" if between else "right, speedup not quoted"
    return f"{significant(case.speedup)} {times}{f' ({between})' if between else ''}"
