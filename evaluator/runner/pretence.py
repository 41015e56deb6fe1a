"""A PyTorch that seems to have one GPU, in a runner of device `emulated` and nowhere else.

`cuda` means the CPU: in the arguments of every function (a torch function mode maps them), in `.cuda()` and `.to()`,
and in the questions that a submission asks (`is_cuda`, `torch.cuda.is_available()`).
"""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode

_CPU = torch.device("cpu")
_GPU = torch.device("cuda", 0)

_device_of = torch.Tensor.device.__get__


def real_device(tensor: torch.Tensor) -> torch.device:
    """Say where a tensor really is, whatever it says of itself."""
    with torch._C.DisableTorchFunction():  # noqa: SLF001 - while a mode is active, torch asks the class, which pretends
        device: torch.device = _device_of(tensor)
    return device


class _CudaIsCpu(TorchFunctionMode):
    """Maps every `cuda` among a torch function's arguments to the CPU."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _KEPT:
            return args[0]
        # A device may be asked what it is; it becomes the CPU where something is done on it.
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


def pretend_to_have_a_gpu() -> None:
    """Change this process's torch; there is no way back."""
    _CudaIsCpu().__enter__()  # type: ignore[no-untyped-call]
    torch.Tensor.is_cuda = property(lambda _: True)  # type: ignore[assignment]
    torch.Tensor.device = property(lambda _: _GPU)  # type: ignore[assignment]
    torch.Tensor.get_device = lambda _: _GPU.index  # type: ignore[method-assign, assignment]
    torch.nn.Module.cuda = lambda self, device=None: self  # type: ignore[method-assign]  # noqa: ARG005
    for name, answer in _ANSWERS.items():
        setattr(torch.cuda, name, answer)


class _Stream:
    """A stream: everything on it is done in order, at once."""

    cuda_stream = 0
    device = _GPU

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        """Do nothing: it is done."""

    def wait_stream(self, _: Any) -> None:
        """Do nothing: it is done."""

    def wait_event(self, _: Any) -> None:
        """Do nothing: it is done."""

    def record_event(self, event: Any = None) -> Any:
        """Give an event, which has happened."""
        return event or _Event()

    def query(self) -> bool:
        """Say that it is done."""
        return True


class _Event:
    """An event, which has happened. It measures nothing: the emulator has no time."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, _: Any = None) -> None:
        """Do nothing."""

    def wait(self, _: Any = None) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Say that it has happened."""
        return True

    def elapsed_time(self, _: Any) -> float:
        """Give the time between two events, of which there is none here."""
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
    # torch.manual_seed calls these, and has seeded the CPU's generator, which is the only one.
    "manual_seed": lambda seed: None,  # noqa: ARG005
    "manual_seed_all": lambda seed: None,  # noqa: ARG005
    "stream": _nothing,
    "device": _nothing,
    "Stream": _Stream,
    "Event": _Event,
}
