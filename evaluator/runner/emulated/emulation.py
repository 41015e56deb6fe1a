"""Device `emulated` inside a runner: the emulator's runtime, and a PyTorch that reports one GPU.

GPU submissions use `device="cuda"`, `.cuda()` and `torch.cuda.is_available()`. In this process all of them mean the
CPU, and the emulator's allocator places a guard page behind each tensor.
"""

import ctypes
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch

from evaluator.protocol import model_call
from evaluator.protocol.frames import EmulatorSchedule
from evaluator.protocol.pytree import mapped
from evaluator.runner.emulated.fake_cuda import install_fake_cuda
from evaluator.runner.triton.launches import InterpretedLaunches

_MESSAGE_BYTES = 1024
_LEFT_OUT = {"kernels": 1, "library": 2}


class Emulated(NamedTuple):
    """Emulated call: the result, the number of kernel launches, and a description of the first refused launch."""

    result: model_call.Result
    launches: int
    refused: str


class Emulation:
    """Emulator of this process."""

    def __init__(self, descriptor: int) -> None:
        """Load the runtime from `descriptor`. Every CPU tensor allocated later ends at a guard page."""
        # The descriptor stays open: the search for the line of an error opens the files of all libraries by name.
        self._library = ctypes.CDLL(f"/proc/self/fd/{descriptor}", mode=os.RTLD_GLOBAL | os.RTLD_NOW)
        self._library.warpgrade_emu_launches.restype = ctypes.c_uint64
        self._library.warpgrade_emu_library_launches.restype = ctypes.c_uint64
        self._library.warpgrade_emu_guard_damage.restype = ctypes.c_uint64
        self._library.warpgrade_emu_fault.restype = ctypes.c_uint64
        self._library.warpgrade_emu_schedules.restype = ctypes.c_uint64
        self._library.warpgrade_emu_refusal.restype = ctypes.c_uint64
        self._schedules = 0
        self._library.warpgrade_emu_install()
        self._triton = InterpretedLaunches()
        install_fake_cuda()

    def run(
        self,
        model: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        output_gradients: Sequence[torch.Tensor] | None,
        schedule: EmulatorSchedule | None,
    ) -> Emulated:
        """Call `model` on copies of the inputs that end at guard pages; copy modified inputs back."""
        if schedule is not None:
            self._schedules += 1
            self._library.warpgrade_emu_schedule(
                ctypes.c_int(schedule.order),
                ctypes.c_uint64(schedule.seed),
                ctypes.c_int(schedule.workers),
                ctypes.c_int(schedule.fill),
            )
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._triton.watch()
        before = self._launches()
        self._refusal()
        try:
            guard = functools.partial(_guarded, pairs)
            result = model_call.run(model, mapped(args, guard), mapped(kwargs, guard), output_gradients)
        except RuntimeError as error:
            if refused := self._refusal():  # The cause of "CUDA error: invalid configuration argument".
                error.args = (f"{error}\n{refused}",)
            raise
        launches = self._launches() - before
        self._check_memory()
        self._check_schedule()
        with torch.no_grad():
            for shared, guarded in pairs:
                shared.copy_(guarded)
        return Emulated(result, launches, self._refusal())

    def launches(self) -> tuple[int, int]:
        """Return the number of kernel launches: the submission's own, and those of emulated libraries."""
        library = int(self._library.warpgrade_emu_library_launches())
        return self._launches() - library, library

    def leave_out(self, what: Literal["kernels", "library"]) -> None:
        """Skip all further launches of the submission's own kernels, or of emulated libraries."""
        self._library.warpgrade_emu_leave_out(ctypes.c_int(_LEFT_OUT[what]))
        self._triton.left_out = what == "kernels"

    def _launches(self) -> int:
        return int(self._library.warpgrade_emu_launches()) + self._triton.count

    def _refusal(self) -> str:
        """Return and forget the first refused launch; empty without a refused launch."""
        text = ctypes.create_string_buffer(_MESSAGE_BYTES)
        self._library.warpgrade_emu_refusal(text, ctypes.c_uint64(_MESSAGE_BYTES))
        return text.value.decode("utf-8", "replace")

    def _check_memory(self) -> None:
        """Raise for a kernel fault, even a caught fault, and for writes around a tensor's data.

        The first fault invalidates a CUDA context, so a fault also counts in all later calls.
        """
        text = ctypes.create_string_buffer(_MESSAGE_BYTES)
        for ask in (self._library.warpgrade_emu_fault, self._library.warpgrade_emu_guard_damage):
            if ask(text, ctypes.c_uint64(_MESSAGE_BYTES)):
                raise RuntimeError(text.value.decode("utf-8", "replace"))

    def _check_schedule(self) -> None:
        """Raise if the submission changed the thread order: a fixed order may hide a data race."""
        if int(self._library.warpgrade_emu_schedules()) != self._schedules:
            raise RuntimeError("the submission set the order of threads, which is the judge's to set")


def _guarded(pairs: list[tuple[torch.Tensor, torch.Tensor]], tensor: torch.Tensor) -> torch.Tensor:
    guarded = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    guarded.copy_(tensor)
    pairs.append((tensor, guarded))
    return guarded
