"""Exact test whether elements of an answer share memory, from addresses, shapes and strides. No memory is read.

An answer that repeats its values in fewer bytes than the reference omits work, and a write into an element changes
other elements. If the reference's own output shares memory, an answer may share memory too.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from evaluator.findings import Code, finding
from evaluator.judge.tensors.pytree import AnswerPair, Value
from evaluator.protocol.frames import TensorView
from evaluator.records import Finding

_STEPS = 50_000
"""Limit of visited branches. Slices and transposes of dense memory need dozens. Undecided cases count as shared, for
the answer and for the reference alike."""


class MemoryLayout(NamedTuple):
    """Layout of a tensor in memory: address of the first element, and strides in elements."""

    start_bytes: int
    item_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end_bytes(self) -> int:
        """Address behind the last element."""
        span = sum((size - 1) * step for size, step in zip(self.shape, self.strides, strict=True))
        return self.start_bytes + (span + 1) * self.item_bytes


Layouts = Mapping[str, MemoryLayout]
"""Layouts by output path. Tensors without elements are omitted."""


def layouts(values: Mapping[str, Value]) -> Layouts:
    """Return the layouts of the tensors in `values`. All must be alive: freed tensors may share an address."""
    all_layouts = {path: layout(value) for path, value in values.items() if isinstance(value, torch.Tensor)}
    return {path: tensor_layout for path, tensor_layout in all_layouts.items() if 0 not in tensor_layout.shape}


def layout(tensor: torch.Tensor) -> MemoryLayout:
    """Return the layout of a tensor."""
    return MemoryLayout(tensor.data_ptr(), tensor.element_size(), tuple(tensor.shape), tuple(tensor.stride()))


def views_laid_out(pairs: Sequence[AnswerPair]) -> Layouts:
    """Return the layouts of an answer's verified tensors in the region."""
    return {
        path: MemoryLayout(answer.offset_bytes, expected.dtype.itemsize, answer.shape, answer.strides)
        for path, expected, answer in pairs
        if isinstance(expected, torch.Tensor) and isinstance(answer, TensorView)
        if answer.offset_bytes is not None and 0 not in answer.shape
    }


def shared_elements(answer: Layouts, reference: Layouts) -> Finding | None:
    """Return a finding if elements of an answer share memory where the reference's elements are separate."""
    for path, answer_layout in answer.items():
        if path in reference and folded(*_without_repeats(answer_layout, reference[path])):
            shape = list(answer_layout.shape[:12])
            message = f"{path}: elements share memory (shape {shape}, strides {list(answer_layout.strides[:12])})"
            return finding(Code.SHARED_ELEMENTS, message, path=path)
    for one, other in _near(answer):
        if not (one in reference and other in reference and meet(reference[one], reference[other])):
            message = f"{one} and {other} share memory; the reference's do not"
            return finding(Code.SHARED_ELEMENTS, message, path=one)
    return None


def lent_weights(answer: Layouts, weights: Layouts, exempt: frozenset[str]) -> Finding | None:
    """Return a finding if an output is a weight in the weight's own memory, where the reference returns a copy.

    Outputs at `exempt` paths may lie there. Locations are verified: of outputs, and of the weights that the judge
    writes before the clock runs.
    """
    for path, answer_layout in answer.items():
        if path in exempt or not path.startswith("output"):
            continue
        if name := next((name for name, weight_layout in weights.items() if meet(answer_layout, weight_layout)), None):
            return finding(Code.OUTPUT_REUSED, f"{path} overlaps the memory of the weight {name}", path=path)
    return None


def _without_repeats(answer: MemoryLayout, honest: MemoryLayout) -> tuple[MemoryLayout, MemoryLayout]:
    """Return both layouts without the dimensions along which the reference repeats an element."""
    distinct_dims = [
        index for index, (size, step) in enumerate(zip(honest.shape, honest.strides, strict=True)) if step or size == 1
    ]
    return _along(answer, distinct_dims), _along(honest, distinct_dims)


def _along(whole: MemoryLayout, dimensions: Sequence[int]) -> MemoryLayout:
    shape, strides = (tuple(values[index] for index in dimensions) for values in (whole.shape, whole.strides))
    return whole._replace(shape=shape, strides=strides)


def folded(answer: MemoryLayout, reference: MemoryLayout) -> bool:
    """Return whether elements of `answer` share memory and elements of `reference` do not."""
    return overlaps(answer) and not overlaps(reference)


def overlaps(tensor: MemoryLayout) -> bool:
    """Return whether two elements of a tensor share an address.

    >>> overlaps(MemoryLayout(0, 4, (3, 2), (2, 1))), overlaps(MemoryLayout(0, 4, (3, 2), (0, 1)))
    (False, True)
    """
    terms = sorted(((step, size - 1) for size, step in zip(tensor.shape, tensor.strides, strict=True) if size > 1))
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
        # Two elements at least 1 apart along this stride, brought together by smaller strides.
        rest = terms[number + 1 :]
        target = sum(small * count for small, count in rest) - step
        if reachable(target, [(step, most - 1), *((small, 2 * count) for small, count in rest)]):
            return True
    return False


def meet(one: MemoryLayout, other: MemoryLayout) -> bool:
    """Return whether two tensors have a byte in common.

    >>> even, odd = MemoryLayout(0, 4, (3,), (2,)), MemoryLayout(4, 4, (3,), (2,))
    >>> wide = MemoryLayout(4, 8, (1,), (1,))
    >>> meet(even, odd), meet(even, wide)
    (False, True)
    """
    if one.end_bytes <= other.start_bytes or other.end_bytes <= one.start_bytes:
        return False
    terms = [(1, tensor.item_bytes - 1) for tensor in (one, other)]
    for tensor in (one, other):
        terms += [(step * tensor.item_bytes, size - 1) for size, step in zip(tensor.shape, tensor.strides, strict=True)]
    # Bytes of `other` count from the end: all terms are then added.
    return reachable(other.end_bytes - 1 - one.start_bytes, terms)


def near(all_layouts: Layouts) -> frozenset[str]:
    """Return the paths of tensors whose extents meet: only these can have a byte in common.

    >>> even, odd = MemoryLayout(0, 4, (3,), (2,)), MemoryLayout(4, 4, (3,), (2,))
    >>> sorted(near({"a": even, "b": odd, "c": MemoryLayout(24, 4, (1,), (1,))}))
    ['a', 'b']
    """
    paths: set[str] = set()
    farthest, end_bytes = "", 0
    for path, tensor_layout in sorted(all_layouts.items(), key=lambda item: item[1].start_bytes):
        if tensor_layout.start_bytes < end_bytes:
            paths |= {farthest, path}
        if tensor_layout.end_bytes > end_bytes:
            farthest, end_bytes = path, tensor_layout.end_bytes
    return frozenset(paths)


def reachable(target: int, terms: Sequence[tuple[int, int]]) -> bool:
    """Return whether `target` is a sum of steps, each used up to a given number of times; True if undecided.

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
    todo, visited = [(0, target)], {(0, target)}
    while todo:
        number, remainder = todo.pop()
        if remainder == 0:
            return True
        if remainder < 0 or remainder > reach[number] or remainder % common[number]:
            continue
        step = steps[number]
        least = max(0, -(-(remainder - reach[number + 1]) // step))
        most = min(counts[step], remainder // step)
        if len(visited) + most - least > _STEPS:
            return True
        following = {(number + 1, remainder - step * count) for count in range(least, most + 1)} - visited
        visited |= following
        todo += following
    return False


def _near(all_layouts: Layouts) -> Iterator[tuple[str, str]]:
    """Yield the pairs of tensors with a byte in common, each pair in the order of the outputs."""
    order = {path: number for number, path in enumerate(all_layouts)}
    open_paths: list[str] = []
    for path in sorted(all_layouts, key=lambda path: all_layouts[path].start_bytes):
        start = all_layouts[path].start_bytes
        open_paths = [open_path for open_path in open_paths if all_layouts[open_path].end_bytes > start]
        for open_path in open_paths:
            if meet(all_layouts[open_path], all_layouts[path]):
                first, second = sorted((open_path, path), key=order.__getitem__)
                yield first, second
        open_paths.append(path)
