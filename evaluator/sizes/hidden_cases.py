"""Hidden cases: shapes drawn by a grade within the ranges of the problem's author, after the submission is fixed.

Most values are awkward on purpose: a neighbour of a graded case, a prime, a multiple of 8 and not of 16.
A drawn extent exceeds the largest of the graded cases by 1 at most: memory for the graded cases is enough.
"""

import math
import random
from collections.abc import Callable, Sequence

from evaluator.errors import CardError
from evaluator.records import AxisRange, Case, CaseResult, Constant, Problem

DRAWN = 4
"""Hidden cases of a grade: one of each kind."""
_TRIES = 50


def drawn_cases(problem: Problem, graded: Sequence[Case], source: random.Random | None = None) -> list[Case]:
    """Return new cases near the `graded` cases, at most `DRAWN`, without listed cases.

    The numbers come from the operating system by default, else from `source`.
    """
    source = random.SystemRandom() if source is None else source
    seen = [case.axes for case in problem.cases.values()]
    cases: list[Case] = []
    for kind in (_anywhere, _neighbour, _prime, _of_eight):
        for _ in range(_TRIES):
            axes = _drawn(problem, graded, kind, source)
            if axes not in seen:
                seen.append(axes)
                cases.append(Case(f"hidden_{len(cases) + 1}", axes, origin="drawn for this grade"))
                break
    return cases


def replayed_cases(problem: Problem, graded: Sequence[Case], results: Sequence[CaseResult]) -> list[Case]:
    """Return the hidden cases of a card for a replay.

    Raises:
        CardError: a case is outside of the problem's ranges: a card may come from anybody.
    """
    hidden = [result for result in results if result.hidden and result.status is not None]
    cases = [Case(f"hidden_{number}", each.axes, origin="drawn for the card") for number, each in enumerate(hidden, 1)]
    for case in cases:
        fixed = [{name: value for name, value in each.axes.items() if name not in problem.hidden} for each in graded]
        rest = {name: value for name, value in case.axes.items() if name not in problem.hidden}
        ranged = all(_is_within(case.axes.get(name), limits) for name, limits in problem.hidden.items())
        if not ranged or rest not in fixed:
            raise CardError(f"the hidden case {case.axes} of the card is outside of the ranges of {problem.name}")
    return cases[:DRAWN]


def _is_within(value: object, limits: AxisRange) -> bool:
    return type(value) is int and limits.min <= value <= limits.max and value % limits.multiple_of == 0


_Kind = Callable[[int, AxisRange, random.Random], int]
"""Returns a value near the value of a graded case, maybe outside of the range."""


def _drawn(problem: Problem, graded: Sequence[Case], kind: _Kind, source: random.Random) -> dict[str, Constant]:
    """Return the axes of a graded case with other values of all axes with ranges."""
    axes = dict(source.choice(graded).axes)
    for name, limits in problem.hidden.items():
        known = [case.axes[name] for case in graded]
        largest = max((value for value in known if isinstance(value, int)), default=limits.max)
        below = AxisRange(limits.min, max(min(limits.max, largest + 1), limits.min), limits.multiple_of)
        graded_value = axes[name]
        value = graded_value if isinstance(graded_value, int) else limits.min
        near = kind(value, below, source)
        axes[name] = near if _is_within(near, below) else _anywhere(value, below, source)
    return axes


def _anywhere(value: int, limits: AxisRange, source: random.Random) -> int:
    """Return a multiple in the range, drawn on a logarithmic scale; `value` if the range has none."""
    step = limits.multiple_of
    least, most = -(-limits.min // step), limits.max // step
    if most < least:
        return value
    if most == least:
        return least * step
    drawn = math.exp(source.uniform(math.log(max(least, 1)), math.log(most + 1)))
    return min(max(int(drawn), least), most) * step


def _neighbour(value: int, limits: AxisRange, source: random.Random) -> int:
    return value + source.choice((-1, 1)) * limits.multiple_of


def _prime(value: int, limits: AxisRange, source: random.Random) -> int:
    start = min(_anywhere(value, AxisRange(limits.min, limits.max), source), limits.max)
    return next((number for number in range(start, max(limits.min, 2) - 1, -1) if _is_prime(number)), start)


def _of_eight(value: int, limits: AxisRange, source: random.Random) -> int:
    drawn = _anywhere(value, AxisRange(limits.min, limits.max), source)
    number = drawn // 16 * 16 + 8
    return number if number <= limits.max else number - 16


def _is_prime(number: int) -> bool:
    return number >= 2 and all(number % factor for factor in range(2, math.isqrt(number) + 1))
