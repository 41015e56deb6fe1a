"""Detection of precomputed outputs: parts of an output with final values before the inputs existed.

A runner poisons all free memory before a call. During a call, the allocator returns no memory that was held at the
start of the call (`runner/native/arena.cpp`). An output in new memory, computed in the call, therefore held poison at
all sampled places (`judge/clock/output_words.py`), or changes there.

Memory that a submission keeps is not poisoned, for example two buffers that hold outputs in turn. The memory before and
after a call does not show whether the call writes a whole buffer: two answers may share most words (zeros). The judge
therefore marks the last call's outputs, as any caller may write into returned outputs. Before the next call's inputs
are written, the judge fills these outputs with a byte of the judge's choice. A call that computes the whole answer
overwrites the marks, and an omitted part is a wrong value. No frequent value is exempt: zeros prepared off the clock,
or left by an earlier call, are found independently of the other words of the output.

A runner cannot report a prepared answer as fresh: the judge examines memory and believes no report. To find and replace
the marks, a call would have to read the whole output.
"""

import secrets

import torch

from evaluator.devices.memory import Region, strided
from evaluator.findings import Code, finding
from evaluator.judge.clock.output_words import WORD_BYTES, MemorySamples
from evaluator.judge.tensors.pytree import AnswerPair
from evaluator.protocol.frames import TensorView
from evaluator.records import Finding

_TELLING_PART = 1 / 64
"""Part of the sampled words. Fewer words prove nothing, and would save no time."""
_TELLING_CALLS = 3
"""Calls of a runner with a precomputed part before a finding. Memory at first touch holds zeros, not poison. The
poisoned range grows with the touched memory, and first touches end after a call or two."""
_FREQUENT_BYTES = (0, 1)
"""Bytes of zero and of true. Kept buffers hold the poison of the call that allocated them until their first use: zeros
over a poison of zeros would look precomputed, and a forward that skips zeros would pass."""
_NAN_BYTE, _NAN_WORD = 255, -1
"""Byte that fills fp32, bf16 and fp16 with NaN: a poison, for a kernel that multiplies unwritten memory by 0. As a word
it is -1, a frequent integer, and therefore no mark, and no evidence."""
_KINDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
"""Dtype for an element's bits, by bytes of the element."""


class PrecomputedOutputCheck:
    """Observation of a runner's output region before and after each call."""

    def __init__(self, memory_samples: MemorySamples) -> None:
        """Start with the places that `memory_samples` chooses in the region."""
        self._memory_samples = memory_samples
        self._poison = 0
        self._mark = drawn_byte(_NAN_BYTE)
        self._views_to_mark: list[tuple[TensorView, int]] = []
        self._calls = 0

    def drawn_poison(self) -> int:
        """Draw a byte for the free memory before a call. The mark would look like poison, and not be evidence."""
        return drawn_byte(self._mark)

    def look(self, poison: int) -> None:
        """Mark the last call's outputs, and sample memory before a call; `poison` fills the free memory.

        The runner must be stopped. Memory released since the last call is poisoned, not marked: the runner keeps the
        last outputs.
        """
        for view, item_bytes in self._views_to_mark:
            _fill(self._memory_samples.region, view, item_bytes, self._mark)
        self._views_to_mark = []
        self._memory_samples.look()
        self._poison = _word(poison)

    def stood_before(self, pairs: list[AnswerPair], exempt: frozenset[str]) -> Finding | None:
        """Return a finding if a verified output had final values before the call; outputs at `exempt` paths may.

        `pairs` lie in the region. Outputs at other paths are marked before the next call.
        """
        self._views_to_mark = [
            (answer, expected.dtype.itemsize)
            for path, expected, answer in pairs
            if isinstance(answer, TensorView) and answer.offset_bytes is not None
            if path not in exempt and path.startswith("output")
        ]
        for path, earlier, now in self._memory_samples.within(self._memory_samples.before, pairs, exempt):
            unchanged = int(((earlier == now) & (earlier != self._poison) & (earlier != _NAN_WORD)).sum())
            if unchanged > len(now) * _TELLING_PART:
                self._calls += 1
                if self._calls < _TELLING_CALLS:
                    return None
                message = (
                    f"{path}: {unchanged} of {len(now)} sampled words had their final values before the inputs arrived"
                )
                return finding(Code.STOOD_BEFORE, message, path=path)
        return None

    def unwritten(self, pairs: list[AnswerPair]) -> Finding | None:
        """Return a finding if a wrong answer is wrong because of remaining marks."""
        for path, earlier, now in self._memory_samples.within(self._memory_samples.before, pairs, frozenset()):
            left = int(((earlier == now) & (now == _word(self._mark)) & (now != self._poison)).sum())
            if left > len(now) * _TELLING_PART:
                message = f"{path}: {left} of {len(now)} sampled words were unwritten in this call and the previous one"
                return finding(Code.STOOD_BEFORE, message, path=path)
        return None


def drawn_byte(*others: int) -> int:
    """Draw a byte that fills a runner's memory: none of `others`, and none of frequent values."""
    return secrets.choice([byte for byte in range(256) if byte not in _FREQUENT_BYTES + others])


def _word(byte: int) -> int:
    return int.from_bytes(bytes([byte]) * WORD_BYTES, "little", signed=True)


def _fill(region: Region, view: TensorView, item_bytes: int, byte: int) -> None:
    """Fill the elements of a verified view, without the gaps: a submission may keep data between elements."""
    steps = [step if size > 1 else 0 for size, step in zip(view.shape, view.strides, strict=True)]
    # Elements at the same address are written once.
    shape = [size if step or not size else 1 for size, step in zip(view.shape, steps, strict=True)]
    target = strided(region.flat, _KINDS[item_bytes], shape, steps, view.offset_bytes or 0)
    pattern = torch.full((item_bytes,), byte, dtype=torch.uint8).view(_KINDS[item_bytes])
    target.copy_(pattern.view(()))
