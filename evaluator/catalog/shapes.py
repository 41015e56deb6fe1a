"""Problems with a list of shapes, as read: the text of the reference, the workloads, and facts of other files."""

import ast
import contextlib
import math
from typing import NamedTuple

from evaluator.catalog.definition import Workload
from evaluator.errors import ProblemError
from evaluator.records import BenchmarkRule, CheckRule, Constant, MatchedRatio, Precision

MOST_SHAPES = 10_000
_BITS = 63


class ShapesText(NamedTuple):
    """A problem as read. `data` has the bytes of all files; `check` is the role of the text's own `check`."""

    source: str
    workloads: list[Workload]
    precision: Precision
    benchmark: BenchmarkRule
    data: bytes
    description: str | None = None
    check: CheckRule | None = None


def constant_of(value: object) -> Constant:
    """Return a value that can be a constant of a reference. Raises ValueError for any other value."""
    if isinstance(value, bool | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, int) and value.bit_length() <= _BITS:
        return value
    if isinstance(value, list | tuple) and value and all(type(each) is int for each in value):
        return [int(each) for each in value]
    raise ValueError(f"{str(value)[:80]} is no number, text or list of integers")


def checked_constant(value: object, where: str) -> Constant:
    """Return a value as `constant_of`. Raises ProblemError with the place `where`."""
    try:
        return constant_of(value)
    except ValueError as error:
        raise ProblemError(f"{where}: {error}") from error


def workload_of(
    name: str, axes: dict[str, Constant], tolerance: MatchedRatio | None = None, weight: float = 1.0
) -> Workload:
    """Return the workload of a shape. The product of all integers stands for the number of elements."""
    extents = [sum(each) if isinstance(each, list) else each for each in axes.values()]
    elements = math.prod(max(each, 1) for each in extents if isinstance(each, int))
    return Workload(uuid=name, axes=axes, elements=elements, tolerance=tolerance, weight=weight)


def literal_defaults(function: ast.FunctionDef) -> dict[str, object]:
    """Return the literal defaults of a function's parameters."""
    arguments = function.args
    names = [argument.arg for argument in arguments.args][len(arguments.args) - len(arguments.defaults) :]
    pairs = [*zip(names, arguments.defaults, strict=True)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    pairs += [(argument.arg, value) for argument, value in keywords if value is not None]
    defaults = {}
    for name, value in pairs:
        with contextlib.suppress(ValueError):
            defaults[name] = ast.literal_eval(value)
    return defaults
