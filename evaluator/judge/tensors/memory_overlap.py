"""Whether elements of an answer share memory, decided exactly from places, shapes and strides. No memory is read.

An answer that repeats itself in fewer bytes than the reference writes has not done that work, and a caller who writes
into one element of it changes others. Where the reference's own output does so, an answer may too.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from evaluator.findings import Code, finding
from evaluator.judge.tensors.pytree import Pair, Value
from evaluator.protocol.frames import TensorView
from evaluator.records import Finding

_STEPS = 50_000
"""So many branches are looked at. Slices and transposes of dense memory need dozens; what is not decided by then counts
as shared, for the answer and for the reference alike."""


class Layout(NamedTuple):
    """Where a tensor's elements lie: the first one's address, and strides in elements."""

    start_bytes: int
    item_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end_bytes(self) -> int:
        """Give the address behind the last element."""
        span = sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))
        return self.start_bytes + (span + 1) * self.item_bytes


Layouts = Mapping[str, Layout]
"""By an output's path. What has no elements is left out."""


def layouts(values: Mapping[str, Value]) -> Layouts:
    """Return the layouts of the tensors among `values`, which are all alive: else two may have had one address."""
    found = {path: layout(value) for path, value in values.items() if isinstance(value, torch.Tensor)}
    return {path: each for path, each in found.items() if 0 not in each.shape}


def layout(tensor: torch.Tensor) -> Layout:
    """Return where a tensor lies."""
    return Layout(tensor.data_ptr(), tensor.element_size(), tuple(tensor.shape), tuple(tensor.stride()))


def views_laid_out(pairs: Sequence[Pair]) -> Layouts:
    """Return where the verified tensors of an answer lie in their region."""
    return {
        path: Layout(answer.offset_bytes, expected.dtype.itemsize, answer.shape, answer.strides)
        for path, expected, answer in pairs
        if isinstance(expected, torch.Tensor) and isinstance(answer, TensorView)
        if answer.offset_bytes is not None and 0 not in answer.shape
    }


def shared_elements(answer: Layouts, reference: Layouts) -> Finding | None:
    """Find memory that two elements of an answer share where the reference's own lie apart."""
    for path, found in answer.items():
        if path in reference and folded(*_without_repeats(found, reference[path])):
            shape = list(found.shape[:12])
            message = f"{path}: elements share memory (shape {shape}, strides {list(found.strides[:12])})"
            return finding(Code.SHARED_ELEMENTS, message, path=path)
    for one, other in _near(answer):
        if not (one in reference and other in reference and meet(reference[one], reference[other])):
            message = f"{one} and {other} share memory; the reference's do not"
            return finding(Code.SHARED_ELEMENTS, message, path=one)
    return None


def lent_weights(answer: Layouts, weights: Layouts, exempt: frozenset[str]) -> Finding | None:
    """Find an output that is a weight in its own memory, where the reference's is a copy; those of `exempt` paths may.

    Where outputs lie is verified, and so is where the judge writes a call's weights: before the clock runs.
    """
    for path, found in answer.items():
        if path in exempt or not path.startswith("output"):
            continue
        if name := next((name for name, place in weights.items() if meet(found, place)), None):
            return finding(Code.OUTPUT_REUSED, f"{path} overlaps the memory of the weight {name}", path=path)
    return None


def _without_repeats(found: Layout, wanted: Layout) -> tuple[Layout, Layout]:
    """Leave out the dimensions along which the reference itself repeats one element."""
    kept = [
        index for index, (size, step) in enumerate(zip(wanted.shape, wanted.strides, strict=True)) if step or size == 1
    ]
    return _along(found, kept), _along(wanted, kept)


def _along(whole: Layout, dimensions: Sequence[int]) -> Layout:
    shape, strides = (tuple(each[index] for index in dimensions) for each in (whole.shape, whole.strides))
    return whole._replace(shape=shape, strides=strides)


def folded(found: Layout, wanted: Layout) -> bool:
    """Say whether elements of `found` share memory and those of `wanted` do not."""
    return overlaps(found) and not overlaps(wanted)


def overlaps(each: Layout) -> bool:
    """Say whether two elements of a tensor lie in the same place.

    >>> overlaps(Layout(0, 4, (3, 2), (2, 1))), overlaps(Layout(0, 4, (3, 2), (0, 1)))
    (False, True)
    """
    terms = sorted(((step, size - 1) for size, step in zip(each.shape, each.strides, strict=True) if size > 1))
    if any(step == 0 for step, _ in terms):
        return True
    reach = 0
    apart = True
    for step, most in terms:
        apart = apart and step > reach
        reach += step * most
    if apart:
        return False
    terms.reverse()
    for number, (step, most) in enumerate(terms):
        # Two elements that first differ along this stride, by one or more, and are brought together by smaller ones.
        rest = terms[number + 1 :]
        target = sum(small * count for small, count in rest) - step
        if reachable(target, [(step, most - 1), *((small, 2 * count) for small, count in rest)]):
            return True
    return False


def meet(one: Layout, other: Layout) -> bool:
    """Say whether two tensors have a byte in common.

    >>> even, odd, wide = Layout(0, 4, (3,), (2,)), Layout(4, 4, (3,), (2,)), Layout(4, 8, (1,), (1,))
    >>> meet(even, odd), meet(even, wide)
    (False, True)
    """
    if one.end_bytes <= other.start_bytes or other.end_bytes <= one.start_bytes:
        return False
    terms = [(1, each.item_bytes - 1) for each in (one, other)]
    for each in (one, other):
        terms += [(step * each.item_bytes, size - 1) for size, step in zip(each.shape, each.strides, strict=True)]
    # Bytes of the other are counted from its end, so that all terms are added.
    return reachable(other.end_bytes - 1 - one.start_bytes, terms)


def reachable(target: int, terms: Sequence[tuple[int, int]]) -> bool:
    """Say whether `target` is a sum of the terms' steps, each taken from none to so many times; True if undecided.

    >>> reachable(7, [(3, 2), (2, 1)]), reachable(8, [(3, 2), (2, 1)])
    (False, True)
    """
    counts: dict[int, int] = {}
    for step, most in terms:
        if step and most > 0:
            counts[step] = counts.get(step, 0) + most
    steps = sorted(counts, reverse=True)
    reach = list(itertools.accumulate((step * counts[step] for step in reversed(steps)), initial=0))[::-1]
    common = list(itertools.accumulate(reversed(steps), math.gcd, initial=0))[::-1]
    todo, seen = [(0, target)], {(0, target)}
    while todo:
        number, left = todo.pop()
        if left == 0:
            return True
        if left < 0 or left > reach[number] or left % common[number]:
            continue
        step = steps[number]
        least = max(0, -(-(left - reach[number + 1]) // step))
        most = min(counts[step], left // step)
        if len(seen) + most - least > _STEPS:
            return True
        following = {(number + 1, left - step * count) for count in range(least, most + 1)} - seen
        seen |= following
        todo += following
    return False


def _near(all_layouts: Layouts) -> Iterator[tuple[str, str]]:
    """List the pairs that have a byte in common, each in the order of the outputs."""
    order = {path: number for number, path in enumerate(all_layouts)}
    open_ones: list[str] = []
    for path in sorted(all_layouts, key=lambda path: all_layouts[path].start_bytes):
        start = all_layouts[path].start_bytes
        open_ones = [each for each in open_ones if all_layouts[each].end_bytes > start]
        for each in open_ones:
            if meet(all_layouts[each], all_layouts[path]):
                first, second = sorted((each, path), key=order.__getitem__)
                yield first, second
        open_ones.append(path)
