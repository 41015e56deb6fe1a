"""Windows inside a runner on `cpu`: the judge releases each call, and its inputs, after the end of the call before."""

import functools
import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from evaluator.devices.handshake import RunnerEnd
from evaluator.devices.memory import host_tensor
from evaluator.protocol.frames import Window
from evaluator.runner.host_arena import HostArena
from evaluator.runner.pytree import to_value


class HostWindows:
    """Reserves the memory of a window's inputs, and makes the released calls."""

    def __init__(self, arena: HostArena, end: RunnerEnd) -> None:
        """Allocate outputs in `arena`."""
        self._arena = arena
        self._end = end
        self._reserved = torch.empty(0, dtype=torch.uint8)

    def prepared(self, frame: Window, model: Callable[..., Any], held: Any) -> list[Callable[[], Any]]:
        """Reserve the inputs' memory, and return the calls. An empty call returns the `held` result."""
        total_bytes = max(slot.offset_bytes + slot.size_bytes for slot in frame.slots)
        self._reserved = host_tensor(mmap.mmap(-1, total_bytes))
        calls: list[Callable[[], Any]] = []
        for call, slot in zip(frame.calls, frame.slots, strict=True):
            region = self._reserved[slot.offset_bytes : slot.offset_bytes + slot.size_bytes]
            args, kwargs = _sequence(to_value(call.args, region)), _mapping(to_value(call.kwargs, region))
            calls.append(
                functools.partial([held].__getitem__, 0) if call.empty else functools.partial(model, *args, **kwargs)
            )
        return calls

    def answer(self, socket: int, frame: Window, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Make the calls that the judge releases, without recording gradients, and return their outputs."""
        self._arena.begin_window(self._end)
        slots = [(slot.offset_bytes, slot.size_bytes) for slot in frame.slots]
        ticket = frame.calls[0].ticket
        with torch.no_grad():
            return self._end.answer(socket, ticket, self._reserved.data_ptr(), slots, calls, bare=frame.bare)


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
