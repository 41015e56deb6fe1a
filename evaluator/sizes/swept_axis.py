"""A swept axis: a case for each of many values of one constant. Pure."""

import re
from typing import NamedTuple

from msgspec.structs import replace

from evaluator.catalog.reference import read_reference
from evaluator.catalog.text import did_you_mean, one_of
from evaluator.errors import UsageError
from evaluator.records import Case, CaseName, Problem

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
