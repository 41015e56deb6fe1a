"""Answers that stood before the question: parts of an output that held their final values before the inputs existed.

Just before a call's inputs are written, while its runner is stopped, random words of the output region are noted. When
the call is over and its outputs are verified, those words are looked at again where they lie in outputs. A runner
poisons all its free memory before a call, and its allocator hands out in a call nothing that was held when it began
(`runner/native/arena.cpp`). So an output that was computed in the call was poison at all those places, or will differ
there from what it was; and one that was not cannot be told to the judge, for it is the memory that is looked at, not a
word of the runner's.
"""

import errno
import os
import secrets
from collections.abc import Iterator
from typing import NamedTuple

import torch

from evaluator.devices.memory import HostRegion
from evaluator.findings import Code, finding
from evaluator.frames import TensorView
from evaluator.judge.trees import Pair
from evaluator.records import Finding

WORDS = 16_384
"""Words noted in a region. It is some 34 outputs large where inputs are as large as outputs; an output that is too
small beside its inputs to be met often has little to gain either."""
_WORD_BYTES = 4
_TELLING_PART = 1 / 64
"""Fewer words than this part of those looked at prove nothing, and would save nothing either."""
_TELLING_CALLS = 3
"""Calls of one runner in which it must be seen. Memory that a call is the first to touch holds zeros, not poison; how
far memory is poisoned grows with what was touched, so that is over after a call or two."""
_MOST_EXTENTS = 1024
"""Written parts of the region that are looked up one by one. A runner that left more has its words read singly."""


class Before(NamedTuple):
    """Words of the region before the inputs were there: `words` (n, int32) at `offsets_bytes` (n, int64, ascending)."""

    offsets_bytes: torch.Tensor
    words: torch.Tensor


class Standing:
    """Looks at one runner's output region before and after each call."""

    def __init__(self, region: HostRegion) -> None:
        """Look at `region`, into which the runner answers."""
        self._region = region
        self._before: Before | None = None
        self._poison = 0
        self._calls = 0

    def look(self, poison: int) -> None:
        """Note what stands there before a call for which free memory was filled with the byte `poison`.

        The runner must be stopped. A page that was never written reads as zero, and is not read: that would take it.
        """
        count = self._region.size_bytes // _WORD_BYTES
        # By a generator of its own: the seed of the default one is told to the runner for random numbers in forward.
        generator = torch.Generator().manual_seed(secrets.randbits(63))
        offsets_bytes = torch.randint(count, (WORDS,), generator=generator).sort().values * _WORD_BYTES
        self._before = Before(offsets_bytes, _read(self._region, offsets_bytes))
        self._poison = int.from_bytes(bytes([poison]) * _WORD_BYTES, "little", signed=True)

    def found(self, pairs: list[Pair], exempt: frozenset[str]) -> Finding | None:
        """Find a verified output that stood there before; `pairs` lie in the region. Those of `exempt` paths may."""
        if self._before is None:
            return None
        offsets_bytes, words = self._before
        for path, expected, answer in pairs:
            if not isinstance(answer, TensorView) or answer.offset_bytes is None or path in exempt:
                continue
            start, end = _span(answer, expected.dtype.itemsize)
            edges = torch.tensor([start, max(start, end - _WORD_BYTES + 1)])
            inside = slice(*torch.searchsorted(offsets_bytes, edges).tolist())
            now = _words(self._region)[offsets_bytes[inside] // _WORD_BYTES]
            looked_at, earlier = len(now), words[inside]
            stood = int(((earlier == now) & (earlier != self._poison)).sum())
            if stood > looked_at * _TELLING_PART:
                self._calls += 1
                if self._calls < _TELLING_CALLS:
                    return None
                message = f"{path}: {stood} of {looked_at} sampled words had their values before the inputs were there"
                return finding(Code.STOOD_BEFORE, message, path=path)
        return None


def _span(view: TensorView, item_bytes: int) -> tuple[int, int]:
    """Say from where to where a verified view reaches, in bytes; what lies between its elements counts as its own.

    That is memory of the same tensor in the runner, so it is as new as the elements are.
    """
    start = view.offset_bytes or 0
    if 0 in view.shape:
        return start, start
    elements = 1 + sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=True))
    return start, start + elements * item_bytes


def _read(region: HostRegion, offsets_bytes: torch.Tensor) -> torch.Tensor:
    extents = []
    for extent in _extents(region):
        extents.append(extent)
        if len(extents) > _MOST_EXTENTS:
            singly = b"".join(os.pread(region.descriptor, _WORD_BYTES, place) for place in offsets_bytes.tolist())
            return torch.frombuffer(bytearray(singly), dtype=torch.int32)
    words = torch.zeros(len(offsets_bytes), dtype=torch.int32)
    if extents:
        # The few edges are looked up among the words, not the words among the edges: that would wait for threads.
        for first, end in torch.searchsorted(offsets_bytes, torch.tensor(extents)).tolist():
            words[first:end] = _words(region)[offsets_bytes[first:end] // _WORD_BYTES]
    return words


def _extents(region: HostRegion) -> Iterator[tuple[int, int]]:
    """List the parts of a region that were ever written, from where to where in bytes."""
    end = 0
    while end < region.size_bytes:
        try:
            start = os.lseek(region.descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # A kernel that does not say: then all of it may have been written.
                yield end, region.size_bytes
            return  # Nothing but a hole is left.
        end = os.lseek(region.descriptor, start, os.SEEK_HOLE)
        yield start, end


def _words(region: HostRegion) -> torch.Tensor:
    return region.flat[: region.size_bytes // _WORD_BYTES * _WORD_BYTES].view(torch.int32)
