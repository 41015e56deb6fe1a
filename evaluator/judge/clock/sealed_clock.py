"""Clock of a runner on a GPU: two processes, one GPU, and the judge's own events around the submission's work.

    judge's stream:   hold | write inputs | overwrite L2 | e0 | go |                | done? | e1 | take samples
    runner's stream:                                              | go? | forward | done |

With warm inputs, the judge's stream reads the inputs again before e0.

`go` and `done` are words in a shared page, written and awaited by streams (cuStreamWriteValue32, cuStreamWaitValue32),
so neither host runs between the streams. The hold waits, like nvbench's blocking kernel, for a word in a private page,
until the runner reports all work as queued, or until a limit: a forward that synchronizes with the GPU reports later.

Contexts share a GPU by time slices. The judge's work from the hold to `go` is not interrupted unless longer than a time
slice. The duration of the work shows whether other work ran in between; the call is then void.

The runner reads the request during the hold, so all work is queued when the clock starts. The request must be worthless
until the start: shapes, and the locations of the inputs. A seed has value if forward draws random numbers, since
another stream of the runner could draw the numbers during the hold. The request is then sent after the clock's start,
and the host's launch time is part of the call: on both sides, and in empty calls.
"""

import ctypes
import mmap
import struct
import time
from collections.abc import Callable, Mapping
from typing import Self

import torch
from msgspec.structs import replace

from evaluator.devices import driver
from evaluator.devices.memory import DONE, GO, HostRegion, SharedMemory
from evaluator.devices.spot_kernels import SpotKernels
from evaluator.errors import JudgeFailed
from evaluator.findings import Code, finding
from evaluator.judge.clock.clock import ClockedCall, ClockedSpotCheck, ClockedWindow
from evaluator.judge.clock.clock_kernels import SLOT_BYTES, InputReader, Sampling, warm_spans
from evaluator.judge.clock.spot_check import SpotCheck
from evaluator.judge.runners.runner_client import RunnerClient, answers
from evaluator.judge.runners.runner_faults import Stage, unexpected_frame
from evaluator.protocol.frames import Call, Done, Frame, Masked, Prepare, Queued, Window
from evaluator.records import Fault, Status
from evaluator.timing.stats import median

_HOLD_S = 0.030
_PROBES = 20
_SEEN, _OPEN = 64, 128  # Offsets in the judge's own page; the hold is at 0.
_WATCH_NS = 20_000_000
"""Time limit for observing the end of a call. In longer calls, a few microseconds do not matter."""
_SETTLE_S = 10.0
_POLL_S = 50e-6
_BLOCKS, _THREADS = 64, 256


class SealedClock:
    """Times the calls of one runner with the GPU's clock, in the judge's own context."""

    memory_samples = None

    def __init__(self, session: RunnerClient, memory: SharedMemory, kernels: bytes) -> None:
        """Pin the pages and load the judge's `kernels`, a cubin for the GPU."""
        if memory.page is None:
            raise TypeError("a sealed clock needs a page")
        self._session = session
        self._outputs = memory.outputs
        self._page = memory.page
        self._page_at = _pinned(memory.page)
        self._hold = HostRegion(mmap.PAGESIZE)
        self._hold_at = _pinned(self._hold)
        self._module = driver.load_module(kernels)
        self._gather = driver.kernel(self._module, "warpgrade_gather")
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]  # type: ignore[no-untyped-call]
        cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self._flush = torch.empty(2 * cache_bytes, dtype=torch.uint8, device="cuda")
        self._work = torch.zeros(1, device="cuda")
        self._ticket = 0
        self.window_calls = memory.window_calls
        self._warm_bytes = memory.warm_bytes
        self._input_reader = InputReader(self._module, memory.inputs.flat) if memory.warm_bytes else None
        self._spot_check = SpotCheck(session, memory, self._page_at, SpotKernels(kernels))
        self.empty_ms = self._time_probe(memory.probe_bytes)
        self._sampling = Sampling({}, "cuda")

    @property
    def windows(self) -> Self:
        """This clock, which has windows of up to `window_calls` calls."""
        return self

    def close(self) -> None:
        """Unpin the pages. The runner must be dead, or have answered the last call."""
        driver.unregister_host(_address(self._page))
        driver.unregister_host(_address(self._hold))
        self._hold.close()

    def _time_probe(self, probe_bytes: int) -> float:
        """Return the duration of an empty call's kernel, from events around the same kernel in this context."""
        source, target = torch.zeros(2, probe_bytes // 4, dtype=torch.int32, device="cuda")
        times_ms = []
        for _ in range(_PROBES):
            start, _, end, _ = self._events
            with torch.cuda.stream(self._stream):
                self._flush.fill_(0)
                start.record()
                torch.bitwise_not(source, out=target)
                end.record()
                self._work.add_(1)
            self._stream.synchronize()
            times_ms.append(start.elapsed_time(end))
        return median(times_ms)

    def prepare(self, frame: Prepare, *, timeout_s: float) -> Done | Fault:
        """Prepare the runner. The runner may continue: the inputs do not exist before the end of the hold."""
        return self._session.prepare(frame, timeout_s=timeout_s)

    def call(
        self,
        frame: Call,
        write: Callable[[], None],
        outline: Mapping[str, torch.Tensor],
        *,
        timeout_s: float,
        queued_timeout_s: float,
        asks_late: bool,
    ) -> ClockedCall | Fault:
        """Queue the judge's side, end the hold when the runner's side is queued, and measure the time between.

        With `asks_late`, the request is sent only after the clock has started.
        """
        sampling, positions, slots = self._sampled(outline)
        frame = replace(frame, ticket=self._ticket, sampled=sampling.paths)
        self._queue([frame], write, sampling, positions, slots, tells_when_open=asks_late)
        if asks_late and not self._opened():
            self._abandon()
            message = "the GPU never finished writing the inputs"
            return Fault(Status.REJECTED, finding(Code.NOT_QUIET, message))
        sent = time.perf_counter_ns()
        answer = self._session.send(frame, Stage.CALL, timeout_s) or self._converse(
            frame, timeout_s, queued_timeout_s, held=not asks_late
        )
        if isinstance(answer, Fault):
            self._abandon()
            return answer
        done, queued_ns, lag_ms = answer
        if not self._settled():
            self._abandon()
            return self._never_ended()
        start, go, end, _ = self._events
        return ClockedCall(
            done,
            elapsed_ms=go.elapsed_time(end),
            host_ms=None if queued_ns is None else (queued_ns - sent) / 1e6,
            prepared_ms=start.elapsed_time(go),
            lag_ms=lag_ms,
            samples=sampling.samples(positions, slots),
        )

    def window(
        self,
        frames: list[Call],
        write: Callable[[], None],
        outline: Mapping[str, torch.Tensor],
        *,
        timeout_s: float,
    ) -> ClockedWindow | Fault:
        """Measure calls one behind the other, as `call` measures one."""
        outlines = {f"{number} {path}": tensor for number in range(len(frames)) for path, tensor in outline.items()}
        sampling, positions, slots = self._sampled(outlines)
        calls = [replace(frame, ticket=self._ticket, sampled=sampling.paths) for frame in frames]
        self._queue(calls, write, sampling, positions, slots, tells_when_open=False)
        sent_ns = time.perf_counter_ns()
        fault = self._session.send(Window(calls=calls), Stage.CALL, timeout_s)
        was_queued = self._session.answered(_HOLD_S)
        host_ms = (time.perf_counter_ns() - sent_ns) / 1e6
        self._let_go()
        answer = fault or self._session.window_answer(calls, timeout_s)
        if isinstance(answer, Fault) or not self._settled():
            self._abandon()
            return answer if isinstance(answer, Fault) else self._never_ended()
        samples = sampling.samples(positions, slots)
        samples_of_calls = [
            {path: sample for path in outline if (sample := samples.get(f"{number} {path}")) is not None}
            for number in range(len(calls))
        ]
        _, go, end, _ = self._events
        elapsed_ms = go.elapsed_time(end)
        answered = [
            ClockedCall(done, elapsed_ms=elapsed_ms, samples=samples_of_call)
            for done, samples_of_call in zip(answer.calls, samples_of_calls, strict=True)
        ]
        return ClockedWindow(answered, elapsed_ms, was_queued, host_ms)

    def spot_check(
        self, frames: list[Call], write: Callable[[], None], masked: list[Masked], *, timeout_s: float
    ) -> ClockedSpotCheck | Fault:
        """Measure calls that are released one at a time, with the judge's host as the clock."""
        ticket = self._ticket + 1
        self._ticket += len(frames) + 1
        # Inputs are drawn on the current stream. Without the wait, the copies into shared memory could be older.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            write()
        self._stream.synchronize()
        answer = self._spot_check.run([replace(frame, ticket=ticket) for frame in frames], masked, timeout_s)
        if isinstance(answer, Fault):
            self._abandon()
        return answer

    def _sampled(self, outline: Mapping[str, torch.Tensor]) -> tuple[Sampling, torch.Tensor, torch.Tensor]:
        """Begin a call or window with a new ticket. Return the sampling, the positions, and slots for the samples."""
        self._ticket += 1
        sampling = self._sampling = self._sampling.of(outline)
        positions = sampling.positions()
        slots = torch.full((len(positions), SLOT_BYTES), 0xA5, dtype=torch.uint8, device="cuda")
        driver.reset_persisting_l2()
        torch.cuda.synchronize()
        return sampling, positions, slots

    def _never_ended(self) -> Fault:
        message = "the runner reported the end of a call that its GPU never finished"
        return Fault(Status.REJECTED, finding(Code.MALFORMED_FRAME, message))

    def _queue(
        self,
        frames: list[Call],
        write: Callable[[], None],
        sampling: Sampling,
        positions: torch.Tensor,
        slots: torch.Tensor,
        *,
        tells_when_open: bool,
    ) -> None:
        stream = self._stream.cuda_stream
        start, go, end, sampled = self._events
        with torch.cuda.stream(self._stream):
            driver.stream_wait(stream, self._hold_at, self._ticket)
            start.record()
            write()
            self._flush.fill_(self._ticket & 0xFF)
            if self._input_reader is not None:
                self._input_reader.read(warm_spans(frames, self._warm_bytes), stream=stream)
            go.record()
            driver.stream_write(stream, self._page_at + GO, self._ticket)
            if tells_when_open:
                driver.stream_write(stream, self._hold_at + _OPEN, self._ticket)
            driver.stream_wait(stream, self._page_at + DONE, self._ticket)
            driver.stream_write(stream, self._hold_at + _SEEN, self._ticket)
            # A kernel waits until the runner's context is idle. The kernel of the samples takes 20 us more for one
            # tensor than for four, so its time is not part of a call's.
            self._work.add_(1)
            end.record()
            driver.launch(
                self._gather,
                blocks=_BLOCKS,
                threads=_THREADS,
                stream=stream,
                arguments=[
                    ctypes.c_uint64(self._outputs.flat.data_ptr()),
                    ctypes.c_uint64(self._outputs.size_bytes),
                    ctypes.c_uint64(self._page_at),
                    ctypes.c_uint64(sampling.shapes.data_ptr()),
                    ctypes.c_uint64(sampling.which.data_ptr()),
                    ctypes.c_uint64(positions.data_ptr()),
                    ctypes.c_int64(len(positions)),
                    ctypes.c_uint64(slots.data_ptr()),
                ],
            )
            sampled.record()

    def _opened(self) -> bool:
        """End the hold, and return whether the clock starts, as signalled by a word in the judge's own page."""
        self._let_go()
        give_up = time.perf_counter_ns() + int(_SETTLE_S * 1e9)
        return _word_time(memoryview(self._hold.buffer)[_OPEN : _OPEN + 4].cast("I"), self._ticket, give_up) is not None

    def _converse(
        self, frame: Call, timeout_s: float, queued_timeout_s: float, *, held: bool = True
    ) -> tuple[Done, int | None, float | None] | Fault:
        """End the hold when the runner has queued its work, and wait for the rest of the answer.

        If the hold has already ended, watch for the end at once: the end may precede the `Queued` frame. Work that is
        not queued when the hold ends may wait for the GPU, so its host time is unknown.
        """
        queued_ns: int | None = None
        if held:
            queued_ns = time.perf_counter_ns() if self._session.answered(_HOLD_S) else None
            self._let_go()
        lag_ms = self._watch_the_end()
        answer: Frame | Fault = self._session.answer(Stage.CALL, timeout_s)
        queued_ns = queued_ns if held else time.perf_counter_ns()
        if isinstance(answer, Queued) and answer.index == frame.index:
            answer = self._session.answer(Stage.CALL, queued_timeout_s)
            if isinstance(answer, Done) and answers(answer, frame):
                return answer, queued_ns, lag_ms
        return answer if isinstance(answer, Fault) else unexpected_frame(answer)

    def _watch_the_end(self) -> float | None:
        """Return the GPU's delay from the word `done` to the judge's next work; None if not observed.

        The judge's work continues once the runner's context is idle. If `done` was written before the end of the work,
        the delay is longer than in a runner without a submission.
        """
        give_up = time.perf_counter_ns() + _WATCH_NS
        done_ns = _word_time(memoryview(self._page.buffer)[DONE : DONE + 4].cast("I"), self._ticket, give_up)
        seen_ns = _word_time(memoryview(self._hold.buffer)[_SEEN : _SEEN + 4].cast("I"), self._ticket, give_up)
        return None if done_ns is None or seen_ns is None else (seen_ns - done_ns) / 1e6

    def _let_go(self) -> None:
        self._hold.buffer[:4] = struct.pack("<I", self._ticket)

    def _settled(self) -> bool:
        """Wait for the end of the judge's stream. Return False after `_SETTLE_S`."""
        deadline = time.monotonic() + _SETTLE_S
        while not self._events[-1].query():  # type: ignore[no-untyped-call]
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _abandon(self) -> None:
        """Kill the runner, then release the judge's stream in its place. Raises JudgeFailed if the GPU hangs."""
        self._session.child.kill()
        self._let_go()
        self._page.buffer[DONE : DONE + 4] = struct.pack("<I", self._ticket)
        if not self._settled():
            raise JudgeFailed("the GPU did not come to rest after a runner was killed")


def _word_time(word: memoryview, ticket: int, give_up_ns: int) -> int | None:
    """Return the time at which a word reached `ticket` or more, as in a stream wait; None at the time limit."""
    with word:
        while word[0] < ticket:
            if time.perf_counter_ns() > give_up_ns:
                return None
        return time.perf_counter_ns()


def _pinned(page: HostRegion) -> int:
    return driver.register_host(_address(page), page.size_bytes)


def _address(page: HostRegion) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(page.buffer))
