"""Words of a runner's output region at secret positions, read at two moments of a call.

First read: the runner is stopped and the inputs are not yet written. Second read: the runner has reported the end of
the call and may still run. Comparison with the memory of the stopped runner detects outputs computed too early
(`judge/answer/precomputed_output.py`) or too late (`output_checks.late_on_host`).
"""

import errno
import itertools
import os
import secrets
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from evaluator.devices.memory import Region
from evaluator.judge.tensors.pytree import AnswerPair
from evaluator.protocol.frames import TensorView

WORDS = 16_384
"""Words sampled in a region. The region holds some 34 outputs if inputs are as large as outputs. An output much smaller
than the inputs is rarely sampled, but also has little time to gain."""
AT_DONE = 256
"""Samples read again inside the timed interval, from memory that the runner has written before. Cost: 4 to 36 us if the
judge slept for a millisecond, 90 to 120 us with cold caches (16 384 words: 0.6 to 1.7 ms). For an output with 1 % late
elements, 20 calls with 15 samples each detect the delay with a probability of 95 %; for 1/8 late elements, two calls
suffice."""
WORD_BYTES = 4
_MOST_EXTENTS = 1024
"""Limit on written extents of the region. With more extents, all words are read one by one."""


class Noted(NamedTuple):
    """Sampled words: `words` (n, int32) at `offsets_bytes` (n, int64, ascending)."""

    offsets_bytes: torch.Tensor
    words: torch.Tensor


class Since(NamedTuple):
    """Samples within one output: as noted, and as of now."""

    path: str
    noted: torch.Tensor
    now: torch.Tensor


class MemorySamples:
    """Positions and content of one call's samples."""

    def __init__(self, region: Region) -> None:
        """Sample `region`, host memory for a runner's outputs."""
        self.region = region
        self.written: list[tuple[int, int]] = []
        """Byte ranges that the runner had ever written before the call, ascending; at most 1025."""
        self.before: Noted | None = None
        self.at_done: Noted | None = None
        self._again = Noted(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int32))
        self._again_at = self._again.offsets_bytes

    def look(self) -> None:
        """Draw positions and read the words before a call. The runner must be stopped.

        An unwritten page counts as zero without a read, since a read would allocate the page.
        """
        count = self.region.size_bytes // WORD_BYTES
        # A separate generator: runners learn the seeds of the default generator, for random numbers in forward.
        generator = torch.Generator().manual_seed(secrets.randbits(63))
        offsets_bytes = _ascending(count, WORDS, generator) * WORD_BYTES
        self.written = list(itertools.islice(_extents(self.region), _MOST_EXTENTS + 1))
        words, written = _read(self.region, offsets_bytes, self.written)
        self.before, self.at_done = Noted(offsets_bytes, words), None
        some = torch.randperm(len(written), generator=generator)[:AT_DONE].sort().values
        self._again = Noted(offsets_bytes[written[some]], words[written[some]])
        self._again_at = self._again.offsets_bytes // WORD_BYTES

    def look_again(self) -> None:
        """Read some of the positions again, inside the timed interval. The runner may still run."""
        # Not `take`: beyond some thousand positions, `take` waits for threads.
        torch.index_select(words_of(self.region), 0, self._again_at, out=self._again.words)
        self.at_done = self._again

    def within(self, noted: Noted | None, pairs: list[AnswerPair], exempt: frozenset[str]) -> Iterator[Since]:
        """Yield noted and current words of each verified output, except outputs at `exempt` paths."""
        for path, expected, answer in pairs:
            if noted is None or not isinstance(answer, TensorView) or answer.offset_bytes is None or path in exempt:
                continue
            start, end = _span(answer, expected.dtype.itemsize)
            edges = torch.tensor([start, max(start, end - WORD_BYTES + 1)])
            inside = slice(*torch.searchsorted(noted.offsets_bytes, edges).tolist())
            yield Since(path, noted.words[inside], words_of(self.region)[noted.offsets_bytes[inside] // WORD_BYTES])


def _ascending(count: int, draws: int, generator: torch.Generator) -> torch.Tensor:
    """Draw uniform numbers below `count`, in ascending order.

    Sums of exponential gaps, divided by the last sum, are distributed as sorted uniform numbers. A sort takes three
    times as long.
    """
    sums = torch.empty(draws + 1, dtype=torch.float64).exponential_(generator=generator).cumsum(0)
    return (sums[:-1] / sums[-1] * count).long().clamp_(max=count - 1)


def _span(view: TensorView, item_bytes: int) -> tuple[int, int]:
    """Return the byte range of a verified view. Gaps between elements are part of the range.

    A gap is memory of the same tensor in the runner, and therefore as new as the elements.
    """
    start = view.offset_bytes or 0
    if 0 in view.shape:
        return start, start
    elements = 1 + sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=True))
    return start, start + elements * item_bytes


def _read(
    region: Region, offsets_bytes: torch.Tensor, extents: Sequence[tuple[int, int]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the words, and the indices of words in written memory. Too many extents are not all known."""
    if len(extents) > _MOST_EXTENTS:
        singly = b"".join(os.pread(region.descriptor, WORD_BYTES, offset) for offset in offsets_bytes.tolist())
        return torch.frombuffer(bytearray(singly), dtype=torch.int32), torch.arange(len(offsets_bytes))
    words = torch.zeros(len(offsets_bytes), dtype=torch.int32)
    written = [torch.empty(0, dtype=torch.int64)]
    if extents:
        # Search the few extent edges among the words; the reverse search would wait for threads.
        for first, end in torch.searchsorted(offsets_bytes, torch.tensor(extents)).tolist():
            words[first:end] = words_of(region)[offsets_bytes[first:end] // WORD_BYTES]
            written.append(torch.arange(first, end))
    return words, torch.cat(written)


def _extents(region: Region) -> Iterator[tuple[int, int]]:
    """Yield the byte ranges of a region that were ever written."""
    end = 0
    while end < region.size_bytes:
        try:
            start = os.lseek(region.descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # Without kernel support, all memory may have been written.
                yield end, region.size_bytes
            return  # Only a hole is left.
        end = os.lseek(region.descriptor, start, os.SEEK_HOLE)
        yield start, end


def words_of(region: Region) -> torch.Tensor:
    """Return a region as a tensor of words (int32)."""
    return region.flat[: region.size_bytes // WORD_BYTES * WORD_BYTES].view(torch.int32)
