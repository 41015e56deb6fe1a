"""Answers that stood before the question: parts of an output that held their final values before the inputs existed.

A runner poisons all its free memory before a call, and its allocator hands out in a call nothing that was held when it
began (`runner/native/arena.cpp`). So an output in new memory that was computed in the call was poison at all places
that were looked at (`judge/clock/memory_samples.py`), or will differ there from what it was.

Memory that a submission keeps is not poisoned: two buffers, say, that hold outputs in turn. Whether a call writes all
of such a one cannot be told from what stands there before and after, for two answers may share most of their words
(zeros). So the judge marks the last call's outputs, as any caller may write into what it was given: it fills them with
a byte of its own before the next call's inputs are written. Who computes all of an answer writes over that, and what
was left out is a wrong value. Nothing is excused that looks common: zeros that are prepared off the clock, or left by
an earlier call, are found whatever the rest of the output is.

An answer that was prepared cannot be told to the judge, for it is the memory that is looked at, not a word of the
runner's. To find and mend the marks a call would have to read all of its output.
"""

import secrets

import torch

from evaluator.devices.memory import Region, strided
from evaluator.findings import Code, finding
from evaluator.judge.clock.memory_samples import WORD_BYTES, MemorySamples
from evaluator.judge.tensors.pytree import Pair
from evaluator.protocol.frames import TensorView
from evaluator.records import Finding

_TELLING_PART = 1 / 64
"""Fewer words than this part of those looked at prove nothing, and would save nothing either."""
_TELLING_CALLS = 3
"""Calls of one runner in which it must be seen. Memory that a call is the first to touch holds zeros, not poison; how
far memory is poisoned grows with what was touched, so that is over after a call or two."""
_KINDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""By an element's bytes, what its bits are written as."""


class PrecomputedOutputCheck:
    """Looks at one runner's output region before and after each call."""

    def __init__(self, words: MemorySamples) -> None:
        """Look at those places of its region that `words` chooses."""
        self._words = words
        self._poison = 0
        self._mark = 2 + secrets.randbelow(253)  # Neither of what a boolean is, nor the byte of -1.
        self._given: list[tuple[TensorView, int]] = []
        self._calls = 0

    def look(self, poison: int) -> None:
        """Mark the last call's outputs, and note what stands before one for which free memory was filled with `poison`.

        The runner must be stopped. What it let go of meanwhile is poisoned, and not marked: it keeps the last outputs.
        """
        for view, item_bytes in self._given:
            _fill(self._words.region, view, item_bytes, self._mark)
        self._given = []
        self._words.look()
        self._poison = _word(poison)

    def found(self, pairs: list[Pair], exempt: frozenset[str]) -> Finding | None:
        """Find a verified output that stood there before; `pairs` lie in the region. Those of `exempt` paths may.

        The others are marked before the next call.
        """
        self._given = [
            (answer, expected.dtype.itemsize)
            for path, expected, answer in pairs
            if isinstance(answer, TensorView) and answer.offset_bytes is not None
            if path not in exempt and path.startswith("output")
        ]
        for path, earlier, now in self._words.within(self._words.before, pairs, exempt):
            stood = int(((earlier == now) & (earlier != self._poison)).sum())
            if stood > len(now) * _TELLING_PART:
                self._calls += 1
                if self._calls < _TELLING_CALLS:
                    return None
                message = (
                    f"{path}: {stood} of {len(now)} sampled words had their final values before the inputs arrived"
                )
                return finding(Code.STOOD_BEFORE, message, path=path)
        return None

    def unwritten(self, pairs: list[Pair]) -> Finding | None:
        """Say of a wrong answer whether it is one because marks are left in it."""
        for path, earlier, now in self._words.within(self._words.before, pairs, frozenset()):
            left = int(((earlier == now) & (now == _word(self._mark)) & (now != self._poison)).sum())
            if left > len(now) * _TELLING_PART:
                message = f"{path}: {left} of {len(now)} sampled words were unwritten in this call and the previous one"
                return finding(Code.STOOD_BEFORE, message, path=path)
        return None


def _word(byte: int) -> int:
    return int.from_bytes(bytes([byte]) * WORD_BYTES, "little", signed=True)


def _fill(region: Region, view: TensorView, item_bytes: int, byte: int) -> None:
    """Fill the elements of a verified view, and nothing that lies between them: that may be what a submission keeps."""
    steps = [step if size > 1 else 0 for size, step in zip(view.shape, view.strides, strict=True)]
    # Elements that lie on each other are written once.
    shape = [size if step or not size else 1 for size, step in zip(view.shape, steps, strict=True)]
    target = strided(region.flat, _KINDS[item_bytes], shape, steps, view.offset_bytes or 0)
    pattern = torch.full((item_bytes,), byte, dtype=torch.uint8).view(_KINDS[item_bytes])
    target.copy_(pattern.view(()))
