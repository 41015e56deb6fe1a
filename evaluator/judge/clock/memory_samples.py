"""Words of a runner's output region at places that nobody else knows, noted at two moments of a call.

Before the inputs are written, while the runner is stopped; and again when it says that the call is over, while it may
still run. What stands there when it has stopped tells what was made too early (`judge/integrity/precomputed_output.py`)
and too late (`output_checks.late_on_host`).
"""

import errno
import os
import secrets
from collections.abc import Iterator
from typing import NamedTuple

import torch

from evaluator.devices.memory import Region
from evaluator.judge.tensors.pytree import Pair
from evaluator.protocol.frames import TensorView

WORDS = 16_384
"""Words noted in a region. It is some 34 outputs large where inputs are as large as outputs; an output that is too
small beside its inputs to be met often has little to gain either."""
AT_DONE = 256
"""So many of them are looked at again inside of the clock: 4 to 36 us where the judge slept for a millisecond, 90 to
120 us where every cache was swept (16 384 would take 0.6 to 1.7 ms then). They are some of those that lie where the
runner has written before. Of an output of which a hundredth comes late, 20 calls with 15 words each show that in 19
cases of 20; of which an eighth does, two calls."""
WORD_BYTES = 4
_MOST_EXTENTS = 1024
"""Written parts of the region that are looked up one by one. A runner that left more has its words read singly."""


class Noted(NamedTuple):
    """What stood where: `words` (n, int32) at `offsets_bytes` (n, int64, ascending)."""

    offsets_bytes: torch.Tensor
    words: torch.Tensor


class Since(NamedTuple):
    """Words within one output: as they were noted, and as they are."""

    path: str
    noted: torch.Tensor
    now: torch.Tensor


class MemorySamples:
    """Knows the places of one call, and what stood there."""

    def __init__(self, region: Region) -> None:
        """Look at `region`, host memory into which a runner answers."""
        self.region = region
        self.before: Noted | None = None
        self.at_done: Noted | None = None
        self._again = Noted(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int32))
        self._again_at = self._again.offsets_bytes

    def look(self) -> None:
        """Draw places and note what stands there before a call. The runner must be stopped.

        A page that was never written reads as zero, and is not read: that would take it.
        """
        count = self.region.size_bytes // WORD_BYTES
        # By a generator of its own: runners are told the default one's seeds, for random numbers in forward.
        generator = torch.Generator().manual_seed(secrets.randbits(63))
        offsets_bytes = torch.randint(count, (WORDS,), generator=generator).sort().values * WORD_BYTES
        words, written = _read(self.region, offsets_bytes)
        self.before, self.at_done = Noted(offsets_bytes, words), None
        some = torch.randperm(len(written), generator=generator)[:AT_DONE].sort().values
        self._again = Noted(offsets_bytes[written[some]], words[written[some]])
        self._again_at = self._again.offsets_bytes // WORD_BYTES

    def look_again(self) -> None:
        """Note what stands at some of the places now. The runner may run; this is inside of the clock."""
        # Not `take`: that waits for threads where there are some thousand places.
        torch.index_select(words_of(self.region), 0, self._again_at, out=self._again.words)
        self.at_done = self._again

    def within(self, noted: Noted | None, pairs: list[Pair], exempt: frozenset[str]) -> Iterator[Since]:
        """Give what was noted in verified outputs beside what is there now, but for those of `exempt` paths."""
        for path, expected, answer in pairs:
            if noted is None or not isinstance(answer, TensorView) or answer.offset_bytes is None or path in exempt:
                continue
            start, end = _span(answer, expected.dtype.itemsize)
            edges = torch.tensor([start, max(start, end - WORD_BYTES + 1)])
            inside = slice(*torch.searchsorted(noted.offsets_bytes, edges).tolist())
            yield Since(path, noted.words[inside], words_of(self.region)[noted.offsets_bytes[inside] // WORD_BYTES])


def _span(view: TensorView, item_bytes: int) -> tuple[int, int]:
    """Say from where to where a verified view reaches, in bytes; what lies between its elements counts as its own.

    That is memory of the same tensor in the runner, so it is as new as the elements are.
    """
    start = view.offset_bytes or 0
    if 0 in view.shape:
        return start, start
    elements = 1 + sum((size - 1) * step for size, step in zip(view.shape, view.strides, strict=True))
    return start, start + elements * item_bytes


def _read(region: Region, offsets_bytes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the words, and the numbers of those that lie where something was written."""
    extents = []
    for extent in _extents(region):
        extents.append(extent)
        if len(extents) > _MOST_EXTENTS:
            singly = b"".join(os.pread(region.descriptor, WORD_BYTES, place) for place in offsets_bytes.tolist())
            return torch.frombuffer(bytearray(singly), dtype=torch.int32), torch.arange(len(offsets_bytes))
    words = torch.zeros(len(offsets_bytes), dtype=torch.int32)
    written = [torch.empty(0, dtype=torch.int64)]
    if extents:
        # The few edges are looked up among the words, not the words among the edges: that would wait for threads.
        for first, end in torch.searchsorted(offsets_bytes, torch.tensor(extents)).tolist():
            words[first:end] = words_of(region)[offsets_bytes[first:end] // WORD_BYTES]
            written.append(torch.arange(first, end))
    return words, torch.cat(written)


def _extents(region: Region) -> Iterator[tuple[int, int]]:
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


def words_of(region: Region) -> torch.Tensor:
    """Look at a region as words (int32)."""
    return region.flat[: region.size_bytes // WORD_BYTES * WORD_BYTES].view(torch.int32)
