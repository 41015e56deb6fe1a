"""Chosen, hidden and swept cases of a grade."""

import math
import random
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.catalog.reference import read_reference
from evaluator.catalog.text import did_you_mean, one_of
from evaluator.errors import CardError, UsageError
from evaluator.records import AxisRange, Case, CaseName, CaseResult, Constant, Problem

ALL, HIDDEN = "all", "hidden"
"""Words of `--case` beside names."""


def chosen_cases(problem: Problem, sizes: Sequence[CaseName], words: Sequence[CaseName]) -> tuple[CaseName, ...]:
    """Return the names of the graded cases, the card's own first. The problem may lack some.

    `words` are the words of `--case`. A number from 0 means a case of the workload by its place; `all` means the cases
    of the workload, or the sizes of a problem without a workload. Without another word than `hidden`, the only case is
    the first of `sizes`. Without words, further sizes of the problem count too.
    """
    if not words:
        return (sizes[0], *(size for size in sizes[1:] if size in problem.cases))
    names: list[CaseName] = []
    for word in words:
        if word == ALL:
            names += problem.workload or problem.cases
        elif word not in problem.cases and word.isdecimal() and int(word) < len(problem.workload):
            names.append(problem.workload[int(word)])
        elif word != HIDDEN:
            names.append(word)
    return tuple(dict.fromkeys(names)) or (sizes[0],)


def missing_case(problem: Problem, sizes: Sequence[CaseName], words: Sequence[CaseName]) -> CaseName | None:
    """Return the first necessary case without a definition in the problem, maybe `hidden`; None if all exist."""
    if HIDDEN in words and not problem.hidden:
        return HIDDEN
    return next((name for name in chosen_cases(problem, sizes, words) if name not in problem.cases), None)


def sought_sizes(sizes: Sequence[CaseName], words: Sequence[CaseName]) -> tuple[CaseName, ...]:
    """Return the names of all sizes for a bare file: the sizes of the device, or the sizes among `words`."""
    return tuple(words) if words and HIDDEN not in words else (*words, *sizes)


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


MOST_VALUES = 64
_LARGEST = 1 << 40
_HINT = "write NAME=START:STOP:xFACTOR, NAME=START:STOP:+STEP, or NAME=VALUE,VALUE,..."
_RANGE = re.compile(r"(\d{1,12}):(\d{1,12}):([x+])(\d{1,12})")
_LIST = re.compile(r"\d{1,12}(,\d{1,12})*")


class SweptAxis(NamedTuple):
    """A constant of the reference, and its values in ascending order."""

    name: str
    values: tuple[int, ...]


def swept_axis(text: str) -> SweptAxis:
    """Read an axis of `--axis`. Raises UsageError.

    >>> swept_axis("N=1024:5000:x2").values
    (1024, 2048, 4096)
    >>> swept_axis("N=8:24:+8").values, swept_axis("N=4,1").values
    ((8, 16, 24), (1, 4))
    """
    name, _, span = text.partition("=")
    if not name.isidentifier():
        raise UsageError(f"--axis {text}: no axis", hint=_HINT)
    if _LIST.fullmatch(span):
        values = sorted({int(value) for value in span.split(",")})
    elif (parts := _RANGE.fullmatch(span)) is not None:
        values = _range(text, int(parts[1]), int(parts[2]), parts[3], int(parts[4]))
    else:
        raise UsageError(f"--axis {text}: no values", hint=_HINT)
    if len(values) < 2:
        raise UsageError(
            f"--axis {text}: one value is no sweep", hint="use --case, or a wider range from START to STOP"
        )
    if len(values) > MOST_VALUES:
        raise UsageError(f"--axis {text}: more than {MOST_VALUES} values", hint="choose a larger factor or step")
    return SweptAxis(name, tuple(values))


def _range(text: str, start: int, stop: int, kind: str, step: int) -> list[int]:
    if start > stop or step < (2 if kind == "x" else 1) or (kind == "x" and start == 0):
        raise UsageError(
            f"--axis {text}: no values", hint="START is at most STOP; a factor is 2 or more, a step 1 or more"
        )
    values = [start]
    while len(values) <= MOST_VALUES:
        following = values[-1] * step if kind == "x" else values[-1] + step
        if following > min(stop, _LARGEST):
            break
        values.append(following)
    return values


def with_swept_cases(problem: Problem, base: CaseName, axis: SweptAxis) -> tuple[Problem, tuple[CaseName, ...]]:
    """Return the problem with a case for each value of the axis, and their names; other constants are those of `base`.

    Raises:
        UsageError: the reference has no such constant, or one of another type.
    """
    constants = read_reference(problem.source, problem.name).constants
    if axis.name not in constants:
        message = f"{problem.name} has no constant {axis.name}; {one_of(constants)}"
        raise UsageError(message, hint=did_you_mean(axis.name, constants))
    if type(constants[axis.name].value) is not int:
        raise UsageError(f"{problem.name}: {axis.name} = {constants[axis.name].value!r} is no integer to sweep")
    axes = problem.cases[base].axes
    cases = {
        (name := f"{axis.name}-{value}"): Case(name=name, axes={**axes, axis.name: value}) for value in axis.values
    }
    return replace(problem, cases={**problem.cases, **cases}), tuple(cases)
