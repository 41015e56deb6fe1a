"""Windows of a runner on the host: the judge releases each call, and times the calls one by one.

A handshake between two spinning processes costs microseconds on a host, and a descriptor reveals a memory file at once.
The judge therefore releases the inputs of a call when the call before has ended (`devices/native/handshake.cpp`). No
two calls of a window can share work, and spot checks are superfluous. The runner never knows whether another call
follows.

Nothing is stopped within a window. The judge reads words of the output region before the release of a call and behind
its end. A word is of the call if it changes between both, and not later.
"""

import secrets
from collections.abc import Iterable, Sequence

import torch
from msgspec.structs import replace

from evaluator.devices.handshake import JudgeEnd, Observed
from evaluator.devices.memory import ALIGNMENT_BYTES, HostRegion, SharedMemory
from evaluator.judge.clock.clock import ClockedCall, HostWindow, OutputWords
from evaluator.judge.clock.memory_samples import WORD_BYTES, MemorySamples, Noted
from evaluator.judge.faults.runner_faults import Stage, unexpected_frame
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.judge.tensors.pytree import extent_bytes
from evaluator.protocol.answer_spans import answer_spans, answer_views
from evaluator.protocol.frames import Call, Done, Queued, Slot, Window
from evaluator.records import Fault

_FEWEST_WORDS = 8
"""Words of an output that the judge must have read at the end of the call; of a smaller output, all."""
DISTURBED_MS = 4.0
"""Time of a call that shares its core with other work, the judge included: twice the longest call of a window."""
_MOST_GAP_PAGES = 4
_PAGE_BYTES = 4096


class HostWindowClock:
    """The clock of one runner's windows, each of at most `window_calls` calls."""

    def __init__(self, session: RunnerClient, memory: SharedMemory, memory_samples: MemorySamples) -> None:
        """Use the regions of `memory`, which has a library and a page."""
        if memory.library is None or memory.page is None:
            raise TypeError("windows on the host need a library and a page")
        self._session = session
        self._outputs = memory.outputs
        self._memory_samples = memory_samples
        self._end = JudgeEnd(memory.library, memory.page)
        self._ticket = 1
        self.window_calls = memory.window_calls

    def window(
        self, frames: Sequence[Call], inputs: Sequence[HostRegion], *, bare: bool, timeout_s: float
    ) -> HostWindow | Fault:
        """Let the stopped runner prepare all `frames`, and release the first ones, whose `inputs` are in place."""
        ticket, self._ticket = self._ticket, self._ticket + len(frames)
        asked = [replace(frame, ticket=ticket) for frame in frames]
        self._end.begin()
        self._session.let_go()
        window = Window(calls=asked, slots=_slots(inputs, len(frames)), bare=bare)
        answer = self._session.ask(window, Stage.CALL, timeout_s)
        if not isinstance(answer, Queued):
            return answer if isinstance(answer, Fault) else unexpected_frame(answer)
        with self._session.working():
            observed = self._end.release(
                self._session.child.socket.fileno(),
                [region.descriptor for region in inputs],
                ticket,
                self._outputs.flat,
                self._memory_samples.written_at,
                self._memory_samples.written,
                1 + secrets.randbits(62),
                self._session.within(timeout_s),
                DISTURBED_MS,
            )
        self._end.end()
        done = self._session.window_answer(asked[: len(observed)], timeout_s)
        if isinstance(done, Fault):
            return done
        if (fault := self._session.stop()) is not None:
            return fault
        pairs = list(zip(done.calls, observed, strict=True))
        written = self._memory_samples.written
        if not frames[0].empty and not all(is_watched(each, seen, written) for each, seen in pairs):
            return HostWindow([], [], was_watched=False)
        # The first call finds cold instructions.
        times_ms = [seen.elapsed_ms for seen in observed[1:]]
        return HostWindow(
            [ClockedCall(each, 0.0, words=_words(seen)) for each, seen in pairs],
            times_ms if len(observed) == len(inputs) else [],
            was_watched=True,
        )


def is_watched(done: Done, seen: Observed, written: Sequence[tuple[int, int]]) -> bool:
    """Return whether the judge read words of every output when the call ended, and may have read some before.

    The runner names the blocks that a call allocated. Words of another block were not read, so outputs in memory that a
    submission keeps, or in a block that it does not name, are not watched. Early words lie in `written` memory, as of
    the window's start. Memory never written before holds zeros instead of poison.
    """
    if any(view.copied or (view.offset_bytes is None and 0 not in view.shape) for view in answer_views(done)):
        return False
    for offset, size_bytes in answer_spans(done):
        first, end = -(-offset // WORD_BYTES), (offset + size_bytes) // WORD_BYTES
        blocks = ((start, start + size) for start, size in seen.blocks)
        if not all(_in_one(offset, offset + size_bytes, ranges) for ranges in (blocks, written)):
            return False  # Numbers from here on are within the region, so they fit into int64.
        read = int(((seen.late_at >= first) & (seen.late_at < end)).sum())
        if read < max(min(_FEWEST_WORDS, end - first), 1):
            return False
    return True


def _in_one(start: int, end: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first <= start and end <= last for first, last in ranges)


def _words(seen: Observed) -> OutputWords:
    return OutputWords(
        before=Noted(seen.early_at * WORD_BYTES, seen.early), at_done=Noted(seen.late_at * WORD_BYTES, seen.late)
    )


def _slots(inputs: Sequence[HostRegion], count: int) -> list[Slot]:
    """Return a slot for each of `count` calls, with gaps that differ from window to window.

    A call that will not be released has a slot like that of a released one.
    """
    slots, offset_bytes = [], 0
    for number in range(count):
        offset_bytes += secrets.randbelow(_MOST_GAP_PAGES) * _PAGE_BYTES
        slots.append(Slot(offset_bytes=offset_bytes, size_bytes=inputs[number % len(inputs)].size_bytes))
        offset_bytes += slots[-1].size_bytes
    return slots


def input_region(tensors: Sequence[torch.Tensor]) -> HostRegion:
    """Return memory for the inputs of one call, with room for another place in each call."""
    needed_bytes = sum(extent_bytes(each) + 2 * ALIGNMENT_BYTES for each in tensors)
    return HostRegion((needed_bytes // _PAGE_BYTES + 2) * _PAGE_BYTES)
