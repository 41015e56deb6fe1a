"""Instrumented calls: profiler, counted operations, launches by NVRTC, and ablation.

Observation slows down a call and sees all tensors, so only extra calls are observed, which are not timed and do not
decide about the answers. A submission in the same process can forge the counts; they can cost a pass, never earn a pass
(see `evaluator/judge/exhibits/own_kernels.py`).

An ablation shows from an answer's bytes which part the answer needs (`evaluator/judge/exhibits/ablation.py`). PyTorch
operations are replaced at the dispatcher's backend kernels. The replacement therefore covers callers in every language,
and callers with excluded Python dispatch keys.
"""

import contextlib
import functools
import inspect
import math
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from types import ModuleType, TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.cuda import _utils as torch_nvrtc
from torch.profiler import ProfilerActivity, profile, schedule

from evaluator.protocol.frames import Counted, Profiled, SeenKernel
from evaluator.protocol.operations import (
    LIBRARY,
    NO_WORK,
    OperationMode,
    computes,
    flop_of,
    moved_bytes_of,
    operation_name,
    operator_of,
)
from evaluator.protocol.pytree import mapped, tensors_of

_MOST_KERNELS = 256
_MOST_NAME = 4096
_OF_THE_PROFILER = "ProfilerStep"


def profiled(call: Callable[[], object], *, gpu: bool) -> Profiled:
    """Profile `call`: GPU kernels with `gpu`, else PyTorch operations without nested operations.

    Runs `call` three times. The first run may compile and tune; the profiler starts in the second and loses its events.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    _finished(call, gpu=gpu)
    with profile(activities=activities, schedule=schedule(wait=0, warmup=1, active=1), acc_events=True) as profiler:
        _finished(call, gpu=gpu)
        profiler.step()
        _finished(call, gpu=gpu)
    device_type = DeviceType.CUDA if gpu else DeviceType.CPU
    by_name: dict[str, tuple[int, float]] = {}
    for event in profiler.events() or []:
        if event.device_type == device_type and not event.name.startswith(_OF_THE_PROFILER):
            time_us = event.time_range.elapsed_us() if gpu else event.self_cpu_time_total
            launches, so_far_us = by_name.get(event.name, (0, 0.0))
            by_name[event.name] = launches + 1, so_far_us + max(float(time_us), 0.0)
    ordered = sorted(by_name.items(), key=lambda item: -item[1][1])
    kernels = [SeenKernel(name[:_MOST_NAME], launches, time_us) for name, (launches, time_us) in ordered]
    return Profiled(kernels=kernels[:_MOST_KERNELS], others=max(len(kernels) - _MOST_KERNELS, 0))


def _finished(call: Callable[[], object], *, gpu: bool) -> None:
    call()
    if gpu:
        torch.cuda.synchronize()


_EXPORTS = ("numpy", "tolist", "__dlpack__")
"""Methods of a tensor that give its values to Python or another library. `__array__` calls `numpy`."""


class OpCounter:
    """Counter, active inside `with` blocks, in the thread of the block."""

    def __init__(self, launches: Callable[[], tuple[int, int]]) -> None:
        """Start at zero. `launches` returns the kernel launches so far: own, and library."""
        self._launches = launches
        self._operations = 0
        self._names: set[str] = set()
        self._flop = 0
        self._moved_bytes = 0
        self._exported_bytes = 0
        self._own = 0
        self._mixed = 0
        self._thread_id: int | None = None
        self._in_own_call = False
        self._mode = _Operations(self)
        self._before = launches()
        self._replaced: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._replaced = {name: vars(torch.Tensor).get(name) for name in _EXPORTS}
        for name in _EXPORTS:
            setattr(torch.Tensor, name, self._counting(getattr(torch.Tensor, name)))
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        self._thread_id = threading.get_ident()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread_id = None
        self._mode.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        for name, method in self._replaced.items():
            if method is None:
                delattr(torch.Tensor, name)  # The base class has the method.
            else:
                setattr(torch.Tensor, name, method)

    def counted(self) -> Counted:
        """Return the counts so far."""
        own_launches, library = (now - before for now, before in zip(self._launches(), self._before, strict=True))
        return Counted(
            launches=max(own_launches, 0),
            library_calls=self._operations + max(library, 0),
            own_calls=self._own,
            mixed_calls=self._mixed,
            operations=sorted(self._names),
            library_launches=max(library, 0),
            flop=self._flop,
            moved_bytes=self._moved_bytes,
            exported_bytes=self._exported_bytes,
        )

    def operation(self, operator: Any, args: Any, kwargs: Any, result: object) -> None:
        """Count a dispatched PyTorch operation and its work, if computing."""
        if operator.namespace in LIBRARY and computes(operator):
            self._operations += 1
            self._names.add(operation_name(operator))
            self._flop += flop_of(operator, args, kwargs, result)
            self._moved_bytes += moved_bytes_of(args, kwargs, result)

    def _counting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def counted(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self._exported_bytes += tensor.numel() * tensor.element_size()
            return method(tensor, *args, **kwargs)

        return counted

    @contextlib.contextmanager
    def own_call(self) -> Iterator[None]:
        """Count a call of an extension function, and as `mixed` with computing PyTorch operations inside.

        Own calls inside own calls do not count: the dispatch mode calls an operator with a backend's kernel once more.
        Other threads do not count, because their PyTorch operations are not seen.
        """
        if self._in_own_call or threading.get_ident() != self._thread_id:
            yield
            return
        before, self._in_own_call = self._operations, True
        self._own += 1
        try:
            yield
        finally:
            self._in_own_call = False
            self._mixed += self._operations != before


class _Operations(OperationMode):
    """Reports every dispatched operation, from Python or C++, to the counter."""

    def __init__(self, op_counter: OpCounter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._op_counter = op_counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._op_counter.operation(func, args, kwargs or {}, result)
        return result


_names: "WeakKeyDictionary[Any, str]" = WeakKeyDictionary()
"""Mangled names of the loaded kernels."""


def name_kernels() -> None:
    """Store the names of kernels loaded from now on. PyTorch versions without the same functions stay unchanged."""
    load = getattr(torch_nvrtc, "_cuda_load_module", None)
    if load is None:
        return

    def loaded(ptx: Any, kernel_names: Any = None) -> Any:
        result = load(ptx, kernel_names)
        if isinstance(result, dict):
            _names.update({kernel: name for name, kernel in result.items()})
        return result

    torch_nvrtc._cuda_load_module = loaded  # noqa: SLF001 - looked up at each call


def leave_out_launches(kernels: Collection[str]) -> None:
    """Make launches do nothing from now on: of `kernels`, or of all kernels. Irreversible."""
    kind: Any = getattr(torch_nvrtc, "_CudaKernel", None)
    if kind is None:
        return
    launch = kind.__call__

    def launched(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        left_out = not kernels or any(_is_named(_names.get(kernel, ""), name) for name in kernels)
        return None if left_out else launch(kernel, *args, **kwargs)

    kind.__call__ = launched


def _is_named(mangled: str, name: str) -> bool:
    """Return whether a mangled name belongs to the function `name` (Itanium C++ ABI: the length comes first).

    >>> _is_named("_Z4reluIfEvPT_", "relu"), _is_named("relu", "relu"), _is_named("_Z5relu6v", "relu")
    (True, True, False)
    """
    return mangled == name or f"{len(name)}{name}" in mangled


LEFT_OUT = "operations of PyTorch's that compute are left out of this call"
_DRAWS = frozenset(("uniform_", "normal_", "random_"))
"""Kernels behind random fills. `rand` and `randn` only create tensors."""
_COMPOSITE = "CompositeImplicitAutograd"


def leave_out_library(device: str) -> None:
    """Make every computing operation on `device` raise from now on. Irreversible."""
    made_of_others = set(torch._C._dispatch_get_registrations_for_dispatch_key(_COMPOSITE))  # noqa: SLF001
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns about each replaced kernel.
        for namespace in LIBRARY:
            library = torch.library.Library(namespace, "IMPL")  # type: ignore[no-untyped-call]
            _KEPT.append(library)
            for name in torch._C._dispatch_get_all_op_names():  # noqa: SLF001
                if name.startswith(f"{namespace}::") and name not in made_of_others and _computes(name):
                    library.impl(name.partition("::")[2], _refuse, device.upper(), allow_override=True)  # type: ignore[no-untyped-call]


_KEPT: list[torch.library.Library] = []
"""References to the registrations: PyTorch removes registrations of a collected library."""


def _computes(name: str) -> bool:
    base = name.partition("::")[2].partition(".")[0]
    if base in NO_WORK or base in _DRAWS:
        return False
    operator = operator_of(name)
    return operator is not None and not operator.is_view


def _refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError(LEFT_OUT)


class OwnFunctions:
    """Wrappers around extension functions and operators: calls are counted, and have no effect after `leave_out`.

    The wrapping happens at load time, because a submission may keep references under names of its own.

    `op_counter` counts the calls, if any. The count needs no profile function of Python's, which would also see every
    other function of the process.
    """

    def __init__(self) -> None:
        """Start with all functions enabled, and no counter."""
        self.op_counter: OpCounter | None = None
        self._are_left_out = False

    def leave_out(self) -> None:
        """Undo the effects of all later calls."""
        self._are_left_out = True

    def wrap(self, module: ModuleType | None, operators: Iterable[Any]) -> None:
        """Wrap all functions and operators of a library."""
        if module is not None:
            self.wrap_in(module)
        self.wrap_operators(operators)

    def wrap_in(self, module: ModuleType) -> None:
        """Wrap the functions of a module and of its submodules, and the methods of their classes."""
        for name, value in list(vars(module).items()):
            if inspect.isclass(value):
                self._wrap_methods(value)
            elif isinstance(value, ModuleType):
                if value.__name__.startswith(f"{module.__name__}."):  # Another module is not the extension's own.
                    self.wrap_in(value)
            elif callable(value) and not _is_pythons(name):
                setattr(module, name, self._wrapped(value))

    def wrap_operators(self, operators: Iterable[Any]) -> None:
        """Wrap the functions behind operators registered with `TORCH_LIBRARY`."""
        for operator in operators:
            operator._op = self._wrapped(operator._op)  # noqa: SLF001

    def _wrap_methods(self, kind: type) -> None:
        for name, value in list(vars(kind).items()):
            if _is_pythons(name):
                continue
            if isinstance(value, staticmethod):
                setattr(kind, name, staticmethod(self._wrapped(value.__func__)))
            elif callable(value):
                setattr(kind, name, self._wrapped(value))

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def instead(*args: Any, **kwargs: Any) -> Any:
            if not self._are_left_out:
                with contextlib.nullcontext() if self.op_counter is None else self.op_counter.own_call():
                    return function(*args, **kwargs)
            tensors = tensors_of([args, kwargs])
            if not tensors:
                return None  # A call with raw addresses cannot be undone, so skip the call.
            with torch.no_grad():
                before = [tensor.clone() for tensor in tensors]
                result = function(*args, **kwargs)
                for tensor, value in zip(tensors, before, strict=True):
                    tensor.copy_(value)
                return _other(result, {id(tensor) for tensor in tensors})

        return instead


def _is_pythons(name: str) -> bool:
    """Return whether Python itself uses the name. A submission calls an object by `__call__`."""
    return name.startswith("__") and name.endswith("__") and name != "__call__"


def _other(value: Any, argument_ids: Iterable[int]) -> Any:
    """Return a wrong value of the same kind as a result; argument tensors in the result stay unchanged."""
    if isinstance(value, float):
        return math.nan
    if isinstance(value, int) and not isinstance(value, bool):
        return -1 - value
    arguments = set(argument_ids)
    return mapped(value, lambda tensor: tensor if id(tensor) in arguments else _other_tensor(tensor))


def _other_tensor(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is torch.bool:
        return ~tensor
    if tensor.is_floating_point() or tensor.is_complex():
        return torch.full_like(tensor, math.nan)
    return _other_whole(tensor) if tensor.dtype in _WHOLE and tensor.numel() > 0 else -1 - tensor


_WHOLE = frozenset((torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8))


def _other_whole(tensor: torch.Tensor) -> torch.Tensor:
    """Reflect integers between minimum and maximum: a wrong index must not read out of bounds."""
    least, largest = tensor.min(), tensor.max()
    if bool(least == largest):
        return tensor - 1 if int(least) > 0 else tensor + 1
    return largest - (tensor - least)
