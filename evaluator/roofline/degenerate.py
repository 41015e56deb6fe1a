"""Dimensions that a small size makes one: there a kernel that sums or broadcasts along the wrong one is right.

A reference runs at two sizes on the meta device, and the shapes of each operation are held against each other. Only a
small size is at fault: a dimension that is one at full size too says something about the problem.
"""

import contextlib
import itertools
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch

from evaluator.catalog import sized_source
from evaluator.dispatch import OperationMode
from evaluator.records import Problem, SizeName
from evaluator.roofline.count import arguments, on_meta, registered
from evaluator.runner import calls

_FILE = "reference.py"


class Degenerate(NamedTuple):
    """A dimension of an operation's tensor that is one at the small size and larger at full size."""

    line: int
    operation: str
    tensor: int
    dimension: int
    full: int

    def __str__(self) -> str:
        return f"line {self.line}, {self.operation}: tensor {self.tensor}, dimension {self.dimension} ({self.full})"


class _Seen(NamedTuple):
    """An operation as it was called: where in the reference, and the shapes of all that it took and gave."""

    line: int
    name: str
    shapes: tuple[tuple[int, ...], ...]


def degenerate(problem: Problem, size: SizeName = SizeName.SMALL) -> list[Degenerate]:
    """List the dimensions that are one at `size` and not at full size, each once, in the order of the operations.

    Raises:
        ProblemError: the problem lacks one of the sizes.
        Exception: what the reference raises on the meta device.
    """
    small, full = (_by_place(_run(sized_source(problem, each))) for each in (size, SizeName.FULL))
    found: dict[tuple[int, str, int, int], Degenerate] = {}
    for place, ones in small.items():
        for one, other in _pairs(ones, full.get(place, [])):
            for tensor, (shape, whole) in enumerate(zip(one.shapes, other.shapes, strict=False)):
                if len(shape) != len(whole):
                    continue
                for dimension, (least, most) in enumerate(zip(shape, whole, strict=True)):
                    if least == 1 < most:
                        each = Degenerate(one.line, one.name, tensor, dimension, most)
                        found.setdefault(each[:4], each)
    return list(found.values())


def _by_place(seen: Sequence[_Seen]) -> dict[tuple[int, str], list[_Seen]]:
    places: dict[tuple[int, str], list[_Seen]] = {}
    for each in seen:
        places.setdefault((each.line, each.name), []).append(each)
    return places


def _pairs(small: list[_Seen], full: list[_Seen]) -> Iterator[tuple[_Seen, _Seen]]:
    """Put the calls of one place side by side; in a loop that is longer at full size, the first and the last ones."""
    if len(small) == len(full):
        return zip(small, full, strict=True)
    ends = min(len(small), len(full)) // 2 + 1
    return itertools.chain(
        zip(small[:ends], full[:ends], strict=False), zip(small[: -ends - 1 : -1], full[: -ends - 1 : -1], strict=False)
    )


def _run(source: str) -> list[_Seen]:
    try:
        return _seen(source, torch.device("meta"))
    except RuntimeError:  # A constructor that asks for values, such as those of a schedule.
        return _seen(source, torch.device("cpu"))


def _seen(source: str, constructed_on: torch.device) -> list[_Seen]:
    with contextlib.redirect_stdout(sys.stderr), registered() as module, torch.no_grad():
        exec(compile(source, _FILE, "exec"), module.__dict__)  # noqa: S102 - the author's own code
        names = module.__dict__
        with constructed_on:
            init_args, init_kwargs = arguments(names["get_init_inputs"])
            model = names["Model"](*init_args, **init_kwargs).to("meta")
        with torch.device("meta"):
            args, kwargs = (on_meta(each) for each in arguments(names["get_inputs"]))
            seen = _Operations()
            with seen:
                calls.forward(model, args, kwargs)
        return seen.found


class _Operations(OperationMode):
    """Notes every operation with its shapes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[_Seen] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = calls.tensors_of([list(args), dict(kwargs or {}), result])
        shapes = [tuple(each.shape) for each in tensors]
        name = func.overloadpacket.__name__
        if name == "native_group_norm":  # Its groups are no dimension of any tensor.
            channels, groups = args[4], args[6]
            shapes.append((groups, channels // groups))
        self.found.append(_Seen(_line(), name, tuple(shapes)))
        return result


def _line() -> int:
    """Say which line of the reference computes now."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - as documented
    while frame is not None and frame.f_code.co_filename != _FILE:
        frame = frame.f_back
    return 0 if frame is None else frame.f_lineno
