"""Native ends of a window on a host: `native/handshake.cpp`, built with the runner's allocator."""

import ctypes
import mmap
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from evaluator.devices.memory import HostRegion

if TYPE_CHECKING:
    import torch

PAGE_BYTES = 4096
_GO_BYTES = 4
_MOST_BLOCKS = 64
_EARLY, _LATE = 256, 512
"""Words that the judge reads before and after a call. The same number as in a single call takes 20 us with cold caches;
the clock does not run meanwhile."""
_SLICE_S = 0.5
"""Time in native code after which Python handles signals, and the grade's deadline."""
_POINTER = ctypes.c_void_p


class _Observed(ctypes.Structure):
    """`WarpgradeObserved` of the library."""

    _fields_ = (
        ("early_at", _POINTER),
        ("early_words", _POINTER),
        ("written", _POINTER),
        ("late_at", _POINTER),
        ("late_words", _POINTER),
        ("late_count", _POINTER),
        ("blocks", _POINTER),
        ("block_count", _POINTER),
        ("elapsed_ns", _POINTER),
        ("early", ctypes.c_int32),
        ("late", ctypes.c_int32),
        ("written_count", ctypes.c_int32),
    )


class _Progress(ctypes.Structure):
    """`WarpgradeProgress` of the library."""

    _fields_ = (
        ("random", ctypes.c_uint64),
        ("start_ns", ctypes.c_int64),
        ("call", ctypes.c_int32),
        ("is_released", ctypes.c_int32),
        ("disturbed", ctypes.c_int32),
    )


class _Python(ctypes.Structure):
    """`WarpgradePython` of the library."""

    _fields_ = (("call", _POINTER), ("set_item", _POINTER))


class Observed(NamedTuple):
    """Observations of one call: words (n, int32) at ascending places (n, int64, in words) before and after the call.

    `blocks` are offset and size in bytes of the memory that the runner says the call allocated; all of them were
    observed after the call. `elapsed_ms` includes the time of late words beyond 100 us: the runner can slow down reads.
    """

    early_at: "torch.Tensor"
    early: "torch.Tensor"
    late_at: "torch.Tensor"
    late: "torch.Tensor"
    blocks: list[tuple[int, int]]
    elapsed_ms: float


class JudgeEnd:
    """The judge's end: releases calls, and observes the runner's output region."""

    def __init__(self, library: int, page: HostRegion) -> None:
        """Load the library behind the descriptor `library`."""
        native = ctypes.CDLL(f"/proc/self/fd/{library}")
        self._release, self._end = native.warpgrade_release, native.warpgrade_end_window
        self._release.argtypes = (
            *(ctypes.c_int, _POINTER, ctypes.c_int, _POINTER, ctypes.c_uint32),
            *(_POINTER, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int64, _POINTER, _POINTER),
        )
        self._end.argtypes = (_POINTER,)
        self._page = page
        self._page_at = _address(page.buffer)

    def begin(self) -> None:
        """Take back the end of the last window, before the runner hears of the next one."""
        self._page.buffer[:_GO_BYTES] = bytes(_GO_BYTES)

    def release(
        self,
        socket: int,
        descriptors: Sequence[int],
        ticket: int,
        region: "torch.Tensor",
        early_at: "torch.Tensor",
        written: Sequence[tuple[int, int]],
        secret: int,
        patience_s: float,
        long_ms: float,
    ) -> list[Observed]:
        """Release a call for each descriptor, and return what was observed of the calls that ended.

        `early_at` are places in `region`, in words, ascending. Places after a call follow from `secret`, and lie in
        `written` memory (start and end in bytes, ascending). A call of more than `long_ms` is disturbed; more than a
        quarter of such calls end the window. Signals are handled every half second.
        """
        import torch

        calls, early = len(descriptors), len(early_at)
        early_words = torch.zeros(calls, early, dtype=torch.int32)
        late_at = torch.zeros(calls, _LATE, dtype=torch.int64)
        late_words = torch.zeros(calls, _LATE, dtype=torch.int32)
        late_count, block_count = torch.zeros(2, calls, dtype=torch.int32)
        blocks = torch.zeros(calls, _MOST_BLOCKS, 2, dtype=torch.int64)
        elapsed_ns = torch.zeros(calls, dtype=torch.int64)
        ranges = torch.tensor(written, dtype=torch.int64)
        arrays = (early_at, early_words, ranges, late_at, late_words, late_count, blocks, block_count, elapsed_ns)
        observed = _Observed(*(each.data_ptr() for each in arrays), early, _LATE, len(written))
        progress = _Progress(random=secret)
        passed = (ctypes.c_int32 * calls)(*descriptors)
        give_up = time.monotonic() + patience_s
        while True:
            over = self._release(
                socket,
                ctypes.addressof(passed),
                calls,
                self._page_at,
                ticket,
                region.data_ptr(),
                region.numel(),
                int(max(min(_SLICE_S, patience_s), 0.0) * 1e9),
                int(long_ms * 1e6),
                ctypes.addressof(observed),
                ctypes.addressof(progress),
            )
            if over or time.monotonic() >= give_up:
                break
        found = []
        for number in range(progress.call):
            places, order = late_at[number, : int(late_count[number])].sort()
            found.append(
                Observed(
                    early_at,
                    early_words[number],
                    places,
                    late_words[number][order],
                    [(start, size) for start, size in blocks[number, : int(block_count[number])].tolist()],
                    int(elapsed_ns[number]) / 1e6,
                )
            )
        return found

    def end(self) -> None:
        """Tell the runner that the window has no further call."""
        self._end(self._page_at)


class RunnerEnd:
    """The runner's end: makes the released calls. No Python runs between the release of a call and the call."""

    def __init__(self, library: int, page: int) -> None:
        """Load the library, and map the page, behind two descriptors."""
        self._answer = ctypes.PyDLL(f"/proc/self/fd/{library}").warpgrade_answer  # Keeps the GIL, unlike CDLL.
        self._answer.argtypes = (
            *(ctypes.c_int, _POINTER, ctypes.c_uint32, _POINTER, _POINTER),
            *(_POINTER, ctypes.c_int, _POINTER, ctypes.py_object, _POINTER),
        )
        self._python = _Python(
            ctypes.cast(ctypes.pythonapi.PyObject_CallNoArgs, _POINTER),
            ctypes.cast(ctypes.pythonapi.PyList_SetItem, _POINTER),
        )
        self._page = mmap.mmap(page, PAGE_BYTES)
        self.page_at = _address(self._page)

    def answer(
        self,
        socket: int,
        ticket: int,
        base: int,
        slots: Sequence[tuple[int, int]],
        callables: Sequence[Callable[[], Any]],
        *,
        bare: bool,
    ) -> list[Any]:
        """Make the released calls, and return their results. `slots` are offsets from `base`, and sizes."""
        count = len(slots)
        numbers = ctypes.c_uint64 * count
        offsets, sizes = (numbers(*each) for each in zip(*slots, strict=True))
        results: list[Any] = [None] * count
        held = (ctypes.py_object * count)(*callables)  # type: ignore[misc]
        made = self._answer(
            socket,
            self.page_at,
            ticket,
            base,
            ctypes.addressof(offsets),
            ctypes.addressof(sizes),
            count,
            ctypes.addressof(held),
            results,
            None if bare else ctypes.addressof(self._python),
        )
        if made < 0:
            raise OSError("the inputs of a call could not be mapped")
        return results[:made]


def _address(buffer: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
