"""Spot check: calls released one at a time, each when the judge holds the digest of the call before.

    judge's host:     key 0, go 0 |                                 | digest 0; key 1, go 1 |
    runner's stream:              | unmask 0 | forward 0 | digest 0 |                       | unmask 1 | ...

The inputs of a call are masked until its release, so no work of the call can begin earlier. The digest fixes the call's
outputs before the next release, so no work can end later. A time between release and digest is therefore the latency of
one call, plus a constant that the same calls without a forward have. A window of the same calls cannot take less per
call, unless work was shared between calls.

The inputs of a spot check are in L2 if they fit: the mask was removed just before.
"""

import secrets
import struct
import time

import torch

from evaluator.devices.memory import DIGEST_BYTES, DIGESTS, GO, KEY_BYTES, KEYS, SharedMemory
from evaluator.devices.spot_kernels import SpotKernels
from evaluator.judge.clock.clock import ClockedCall, ClockedSpotCheck
from evaluator.judge.runners.runner_client import RunnerClient
from evaluator.judge.runners.runner_faults import Stage, unexpected_frame
from evaluator.protocol.frames import Call, Done, Masked, Window
from evaluator.protocol.pytree import answer_spans
from evaluator.records import Fault

_QUEUED_S = 0.1
"""Time for the runner to queue all calls. A forward that waits for the GPU continues with its release."""
_LOOKS = 256
"""Looks at the page between two looks at the host's clock."""
_ALIVE_NS = 20_000_000
"""Time between two looks at the runner's exit, which a missing digest may mean."""


class SpotCheck:
    """Spot checks of one runner, by the words of the shared `page`, pinned at `page_at`."""

    def __init__(self, session: RunnerClient, memory: SharedMemory, page_at: int, spot_kernels: SpotKernels) -> None:
        """Use the regions of `memory`, which has a page."""
        if memory.page is None:
            raise TypeError("a spot check needs a page")
        self._session = session
        self._inputs, self._outputs = memory.inputs.flat, memory.outputs.flat
        self._page = memory.page.buffer
        self._page_at = page_at
        self._spot_kernels = spot_kernels

    def run(self, frames: list[Call], masked: list[Masked], timeout_s: float) -> ClockedSpotCheck | Fault:
        """Mask the inputs, which are in place, then release the calls and compare the digests."""
        keys = [secrets.randbits(8 * KEY_BYTES) for _ in frames]
        self._mask(masked, keys)
        self._page[DIGESTS : DIGESTS + DIGEST_BYTES * len(frames)] = bytes(DIGEST_BYTES * len(frames))
        fault = self._session.send(Window(calls=frames, masked=masked), Stage.CALL, timeout_s)
        if fault is not None:
            return fault
        self._session.answered(_QUEUED_S)
        give_up_ns = time.perf_counter_ns() + int(self._session.within(timeout_s) * 1e9)
        times_ms, digests = [], []
        for number, (frame, key) in enumerate(zip(frames, keys, strict=True)):
            released = self._release(number, frame.ticket + number, key, give_up_ns)
            if released is None:
                break  # The answer below says why.
            times_ms.append(released[0])
            digests.append(released[1])
        answer = self._session.window_answer(frames, timeout_s)
        if isinstance(answer, Fault):
            return answer
        if len(digests) < len(frames):
            return unexpected_frame(answer)
        mismatch = next(
            (number for number, done in enumerate(answer.calls) if self._digest(done) != digests[number]), None
        )
        return ClockedSpotCheck([ClockedCall(done, elapsed_ms=0.0) for done in answer.calls], times_ms, mismatch)

    def _mask(self, masked: list[Masked], keys: list[int]) -> None:
        start, stream = self._inputs.data_ptr(), torch.cuda.current_stream().cuda_stream
        for span, key in zip(masked, keys, strict=True):
            self._spot_kernels.take(key)
            self._spot_kernels.mask(start + span.offset_bytes, span.size_bytes, stream=stream)
        torch.cuda.synchronize()

    def _release(self, number: int, ticket: int, key: int, give_up_ns: int) -> tuple[float, int] | None:
        """Release a call, and return the time to its digest, and the digest; None at the time limit of all calls."""
        at, key_at = DIGESTS + DIGEST_BYTES * number, KEYS + KEY_BYTES * number
        with (
            memoryview(self._page)[at : at + DIGEST_BYTES].cast("Q") as digest,
            memoryview(self._page)[GO : GO + 4].cast("I") as go,
        ):
            self._page[key_at : key_at + KEY_BYTES] = key.to_bytes(KEY_BYTES, "little")
            started_ns = time.perf_counter_ns()
            go[0] = ticket
            alive_ns = started_ns + _ALIVE_NS
            while (now_ns := time.perf_counter_ns()) < give_up_ns:
                if any(digest[0] for _ in range(_LOOKS)):
                    # The first word is the last to be written.
                    return (time.perf_counter_ns() - started_ns) / 1e6, int.from_bytes(digest, "little")
                if now_ns > alive_ns:
                    alive_ns = now_ns + _ALIVE_NS
                    if self._session.child.poll_exit() is not None:
                        break
            return None

    def _digest(self, done: Done) -> int | None:
        """Return the digest of an answer's outputs now; None if the answer's tensors do not lie in the region."""
        start, size_bytes = self._outputs.data_ptr(), self._outputs.numel()
        spans = answer_spans(done)
        if any(offset < 0 or size > size_bytes - offset for offset, size in spans):
            return None
        slot = torch.zeros(2, dtype=torch.int64, device="cuda")
        stream = torch.cuda.current_stream().cuda_stream
        self._spot_kernels.digest([(start + offset, size) for offset, size in spans], slot.data_ptr(), stream=stream)
        return int.from_bytes(struct.pack("<2q", *slot.tolist()), "little")
