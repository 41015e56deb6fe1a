"""A PyTorch that reports one GPU, for runners of device `emulated` only.

`cuda` means the CPU in function arguments (mapped by a torch function mode), in `.cuda()` and `.to()`, and in queries
(`is_cuda`, `torch.cuda.is_available()`).
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import cpp_extension
from torch.utils._device import DeviceContext

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
