"""Answers of the tools as text of limited length. Pure."""

from typing import NamedTuple

import msgspec

from evaluator.agents.tools import Compared, ComparedCase, Graded, GradedCase
from evaluator.api.scorecard import Scorecard
from evaluator.catalog import Listing
from evaluator.errors import UsageError, WarpgradeError
from evaluator.findings import ENTRIES
from evaluator.findings.lookup import code_named
from evaluator.records import CaseResult, KernelResources, KernelUse, Problem, Profiling
from evaluator.report.card.measurement import axes_text, calls_line, differing_axes
from evaluator.report.layout.quotation import MARK, plain, quoted
from evaluator.report.problems import listing_text, problem_text
from evaluator.text import counted, duration, one_line, ratio

_MOST_CASES = 16
_MOST_RESULTS = 100
"""Limit of cases in a structured result: a client may show it to the model as well."""
_MOST_KERNELS = 5
_NAME = 60


class SpeedupInterval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


def bounded(text: str, characters: int, more: str) -> str:
    r"""Return `text`, or its first lines with the remark `more`, within `characters`.

    >>> bounded("one\ntwo\nthree\n", 12, "(cut)")
    'one\n(cut)'
    """
    if len(text) <= characters:
        return text
    start = text[: max(0, characters - len(more) - 1)]
    return f"{start[: start.rfind(chr(10))] if chr(10) in start else start}\n{more}"


def explanation(code: str) -> str:
    """Return statuses, meaning and next step of a finding's code. Raises UsageError for an unknown code."""
    known_code = code_named(code.strip(), listing="problems with a code come from the tool `grade`")
    entry = ENTRIES[known_code]
    return f"{known_code.value}: {entry.title}\n\n{entry.explanation}\n\nNext: {entry.next_step}"


def problem_list(listing: Listing, containing: str, characters: int) -> str:
    """Return the names of problems that contain a text."""
    chosen = [problem for problem in listing.problems if containing.lower() in problem.name.lower()]
    if not chosen and containing:
        return f"No name contains {one_line(containing, 60)!r}; {counted(len(listing.problems), 'problem')} in all."
    more = "(there are more problems: ask with `containing`, or with more `characters`)"
    return bounded(listing_text(listing._replace(problems=chosen)), characters, more)


def one_problem(problem: Problem, characters: int) -> str:
    """Return task, sizes and reference of a problem."""
    return bounded(problem_text(problem), characters, "(the rest is cut: ask with more `characters`)")


def failed(error: WarpgradeError) -> str:
    """Return an error with what to do about it."""
    hint = (
        error.hint or "the tool `problems` lists the problems, or shows the cases of one"
        if isinstance(error, UsageError)
        else error.hint
    )
    return f"{error.message}\nNext: {hint}" if hint else error.message


def verdict(card: Scorecard) -> Graded:
    """Return the verdict of a card."""
    code = None if card.reason is None else card.reason.code
    return Graded(
        status=card.status,
        correct=card.correct,
        code=code,
        speedup=card.speedup,
        cases=[msgspec.convert(case, GradedCase, from_attributes=True) for case in card.cases[:_MOST_RESULTS]],
    )


def profiled(card: Scorecard, characters: int) -> str:
    """Return the profile of a submission, and its feedback in the remaining room."""
    if card.profiling is None:
        return card.feedback(characters=characters)
    profile = "\n".join(_profile(card.profiling))
    return f"{profile}\n\n{card.feedback(characters=characters - len(profile) - 2)}"


def _profile(profiling: Profiling) -> list[str]:
    if profiling.finding is not None:
        return ["There is no profile:", *quoted(profiling.finding.message[:600], 3)]
    head = f"Profile of one call, {duration(profiling.time_us / 1e3, 'u')} in all; the submission's process reports it:"
    lines = [head, *(_use(use, profiling.time_us) for use in profiling.kernels[:_MOST_KERNELS])]
    omitted = max(len(profiling.kernels) - _MOST_KERNELS, 0) + profiling.other_kernels
    if omitted:
        lines.append(f"({counted(omitted, 'shorter one')})")
    if profiling.resources:
        lines += ["Compiled kernels:", *map(_resources, profiling.resources[:_MOST_KERNELS])]
    return lines


def _use(use: KernelUse, whole_us: float) -> str:
    part = use.time_us / whole_us if whole_us > 0 else 0.0
    own_text = ", own kernel" if use.own else ""
    return f"{MARK}{part:.0%} {plain(use.name, _NAME)}: {duration(use.time_us / 1e3, 'u')}, {use.launches} x{own_text}"


def _resources(kernel: KernelResources) -> str:
    spilt = kernel.spill_store_bytes + kernel.spill_load_bytes
    return (
        f"{MARK}{plain(kernel.name, _NAME)}: {counted(kernel.registers, 'register')}, "
        f"{counted(kernel.shared_bytes, 'byte')} shared, {counted(spilt, 'byte')} spilt"
    )


def compared(first: Scorecard, second: Scorecard) -> Compared:
    """Return the verdicts of two grades, and how their speeds compare."""
    interval = _ratio(first, second)
    low, high = (None, None) if interval is None else interval
    cases = [
        ComparedCase(name=case.name, axes=case.axes, ratio_low=ratio.low, ratio_high=ratio.high)
        for case, ratio in _ratios(first, second)[:_MOST_RESULTS]
    ]
    return Compared(first=verdict(first), second=verdict(second), ratio_low=low, ratio_high=high, cases=cases)


def comparison(first: Scorecard, second: Scorecard, characters: int) -> str:
    """Return a comparison of two grades, with the feedback on each incorrect submission."""
    cards = {"first": first, "second": second}
    lines = ["\n".join([_conclusion(first, second), *_by_case(first, second)])]
    for name, card in cards.items():
        if card.correct:
            lines.append(f"The {name} is correct{_speed(card)}.")
        else:
            lines.append(f"The {name} is not correct:\n{card.feedback(characters=characters // 2 - 200)}")
    return "\n\n".join(lines)


def _conclusion(first: Scorecard, second: Scorecard) -> str:
    if not (first.correct and second.correct):
        return "Only two correct submissions have comparable speeds."
    interval = _ratio(first, second)
    if interval is None:
        reason = "a measurement is too uncertain" if first.is_timed else "the grade measured no time"
        if not (first.has_like_weights and second.has_like_weights):
            reason = "weights could not change (C421)"
        return f"Both are correct. Their speeds are unknown: {reason}."
    measured = f"{ratio(interval.low)} to {ratio(interval.high)} times the speed of the first (95 % intervals)"
    if interval.low > 1:
        return f"The second is certainly faster: {measured}."
    if interval.high < 1:
        return f"The second is certainly slower: {measured}."
    return f"No certain difference: the second has {measured}."


def _by_case(first: Scorecard, second: Scorecard) -> list[str]:
    """Return a line for each case that both grades timed, the slowest first."""
    ratios = sorted(_ratios(first, second), key=lambda item: item[1].low)
    differing = differing_axes(first.cases)
    lines = [
        f"{MARK}{plain(f'{case.name} ({axes_text(case, differing)})')}: {ratio(speed.low)} to {ratio(speed.high)} times"
        for case, speed in ratios[:_MOST_CASES]
    ]
    more = [f"({counted(len(ratios) - _MOST_CASES, 'faster case')})"] if len(ratios) > _MOST_CASES else []
    return ["By case:", *lines, *more] if lines else []


def _ratios(first: Scorecard, second: Scorecard) -> list[tuple[CaseResult, SpeedupInterval]]:
    """Return the cases that both grades timed, with the quotient of the speedups by the far ends of both intervals."""
    after = {case.name: case for case in second.cases if not case.hidden}
    pairs = [(case, after[case.name]) for case in first.cases if case.name in after and not case.hidden]
    return [
        (case, SpeedupInterval(new.speedup_low / case.speedup_high, new.speedup_high / case.speedup_low))
        for case, new in pairs
        if case.speedup_low and case.speedup_high and new.speedup_low and new.speedup_high
    ]


def _speed(card: Scorecard) -> str:
    interval = _interval(card)
    if interval is None or card.timing is None:
        return ""
    times = f"{ratio(interval.low)} to {ratio(interval.high)} times the reference's speed"
    return f", with {times}, measured with {calls_line(card.timing)}"


def _ratio(first: Scorecard, second: Scorecard) -> SpeedupInterval | None:
    """Return the quotient of two speedups over one reference, by the far ends of both intervals."""
    base, new = _interval(first), _interval(second)
    return None if base is None or new is None else SpeedupInterval(new.low / base.high, new.high / base.low)


def _interval(card: Scorecard) -> SpeedupInterval | None:
    _, low, high = card.quoted
    return None if not low or low <= 0 or high is None else SpeedupInterval(low, high)
