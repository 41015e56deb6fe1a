"""Wrappers around a submission's own functions, and the omission of one part of the work.

The judge starts such runners to determine from an answer's bytes which part the answer needs
(`evaluator/judge/exhibits/ablation.py`). The same wrappers count calls. PyTorch operations are replaced at the
dispatcher's backend kernels. The replacement therefore covers callers in every language, and callers with excluded
Python dispatch keys.
"""

import contextlib
import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from evaluator.protocol.operations import LIBRARY, NO_WORK, operator_of
from evaluator.protocol.pytree import mapped, tensors_of
from evaluator.runner.instrumentation.op_counter import OpCounter

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
