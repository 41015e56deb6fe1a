"""CUDA on the CPU in a runner: the emulator's runtime, and replacements of PyTorch's CUDA functions.

`cuda` means the CPU in function arguments (mapped by a torch function mode), in `.cuda()` and `.to()`, and in queries
(`is_cuda`, `torch.cuda.is_available()`). The emulator's allocator places a guard page behind each tensor.
"""

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, Self

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import cpp_extension
from torch.utils._device import DeviceContext

from evaluator.protocol import model_call
from evaluator.protocol.frames import EmulatorSchedule
from evaluator.protocol.pytree import mapped
from evaluator.runner.triton.launches import InterpretedLaunches

_CPU = torch.device("cpu")
_GPU = torch.device("cuda", 0)

_device_of = torch.Tensor.device.__get__


def real_device(tensor: torch.Tensor) -> torch.device:
    """Return a tensor's true device, regardless of the patched `device` property."""
    with torch._C.DisableTorchFunction():  # noqa: SLF001 - while a mode is active, torch asks the class, which pretends
        device: torch.device = _device_of(tensor)
    return device


class _CudaIsCpu(TorchFunctionMode):
    """Maps every `cuda` in a torch function's arguments to the CPU."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _KEPT:
            return args[0]
        # Constructing a device keeps `cuda`; using a device maps `cuda` to the CPU.
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        return func(*(_mapped(value) for value in args), **{k: _mapped(v) for k, v in (kwargs or {}).items()})


_KEPT = {torch.Tensor.cuda, torch.Tensor.pin_memory}


def _mapped(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "cuda":
        return _CPU
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return _CPU
    return value


def install_fake_cuda() -> None:
    """Patch this process's torch. Irreversible."""
    _CudaIsCpu().__enter__()  # type: ignore[no-untyped-call]
    # A default device is below every mode: `set_default_device`, and a device as a context.
    plain = DeviceContext.__init__
    DeviceContext.__init__ = lambda self, device: plain(self, _mapped(torch.device(device)))  # type: ignore[method-assign]
    torch.Tensor.is_cuda = property(lambda _: True)  # type: ignore[assignment]
    torch.Tensor.device = property(lambda _: _GPU)  # type: ignore[assignment]
    torch.Tensor.get_device = lambda _: _GPU.index  # type: ignore[method-assign, assignment]
    torch.Tensor.record_stream = lambda self, stream: None  # type: ignore[method-assign, assignment]  # noqa: ARG005
    cpp_extension.CUDA_HOME = "/usr/local/cuda"  # builds go to the judge; submissions only test for None
    torch.nn.Module.cuda = lambda self, device=None: self  # type: ignore[method-assign]  # noqa: ARG005
    for name, answer in _ANSWERS.items():
        setattr(torch.cuda, name, answer)


class _Stream:
    """Stream whose operations complete immediately, in order."""

    cuda_stream = 0
    device = _GPU
    _as_parameter_ = ctypes.c_void_p(0)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        """Do nothing: all work is complete."""

    def wait_stream(self, _: Any) -> None:
        """Do nothing: all work is complete."""

    def wait_event(self, _: Any) -> None:
        """Do nothing: all work is complete."""

    def record_event(self, event: Any = None) -> Any:
        """Return a completed event."""
        return event or _Event()

    def query(self) -> bool:
        """Return True: all work is complete."""
        return True


class _Event:
    """Completed event without timing: the emulator does not simulate time."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, _: Any = None) -> None:
        """Do nothing."""

    def wait(self, _: Any = None) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Return True: the event is complete."""
        return True

    def elapsed_time(self, _: Any) -> float:
        """Return 0: the emulator does not simulate time."""
        return 0.0


@contextlib.contextmanager
def _nothing(*_: Any, **__: Any) -> Iterator[None]:
    yield


_PROPERTIES = SimpleNamespace(
    name="Warpgrade emulator",
    major=9,
    minor=0,
    total_memory=141 << 30,
    multi_processor_count=132,
    warp_size=32,
    max_threads_per_multi_processor=2048,
    shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=227 << 10,
    regs_per_multiprocessor=65536,
    L2_cache_size=50 << 20,
)
_ANSWERS: dict[str, Any] = {
    "is_available": lambda: True,
    "is_initialized": lambda: True,
    "init": lambda: None,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "set_device": lambda _: None,
    "synchronize": lambda device=None: None,  # noqa: ARG005 - torch's signature
    "empty_cache": lambda: None,
    "get_device_name": lambda device=None: _PROPERTIES.name,  # noqa: ARG005
    "get_device_capability": lambda device=None: (9, 0),  # noqa: ARG005
    "get_device_properties": lambda device=None: _PROPERTIES,  # noqa: ARG005
    "memory_allocated": lambda device=None: 0,  # noqa: ARG005
    "max_memory_allocated": lambda device=None: 0,  # noqa: ARG005
    "current_stream": lambda device=None: _Stream(),  # noqa: ARG005
    "default_stream": lambda device=None: _Stream(),  # noqa: ARG005
    # Called by torch.manual_seed after seeding the CPU generator, the only generator of the process.
    "manual_seed": lambda seed: None,  # noqa: ARG005
    "manual_seed_all": lambda seed: None,  # noqa: ARG005
    "stream": _nothing,
    "device": _nothing,
    "Stream": _Stream,
    "Event": _Event,
}


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
