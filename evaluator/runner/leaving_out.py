"""One side of a submission's work left out: its own kernels, or PyTorch's operations that compute.

The judge makes such runners to see from the bytes of an answer what it needs (`evaluator/judge/left_out.py`).
Operations of PyTorch's are replaced where the dispatcher looks kernels up, so it makes no difference which of Python's
keys a caller has excluded, or in which language it is written.
"""

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from evaluator.protocol import model_call
from evaluator.protocol.operations import LIBRARY, NO_WORK, operator_of

LEFT_OUT = "operations of PyTorch's that compute are left out of this call"
_DRAWS = frozenset(("uniform_", "normal_", "random_"))
"""What filling with random numbers comes down to: `rand` and `randn` make tensors, and compute nothing."""
_COMPOSITE = "CompositeImplicitAutograd"


def leave_out_library(device: str) -> None:
    """Have every operation that computes fail from now on, on tensors of `device`. There is no way back."""
    made_of_others = set(torch._C._dispatch_get_registrations_for_dispatch_key(_COMPOSITE))  # noqa: SLF001
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that kernels are replaced, which is what this is for.
        for namespace in LIBRARY:
            library = torch.library.Library(namespace, "IMPL")  # type: ignore[no-untyped-call]
            _KEPT.append(library)
            for name in torch._C._dispatch_get_all_op_names():  # noqa: SLF001
                if name.startswith(f"{namespace}::") and name not in made_of_others and _computes(name):
                    library.impl(name.partition("::")[2], _refuse, device.upper(), allow_override=True)  # type: ignore[no-untyped-call]


_KEPT: list[torch.library.Library] = []
"""What is registered is taken back when its library is collected."""


def _computes(name: str) -> bool:
    base = name.partition("::")[2].partition(".")[0]
    if base in NO_WORK or base in _DRAWS:
        return False
    operator = operator_of(name)
    return operator is not None and not operator.is_view


def _refuse(*_: Any, **__: Any) -> Any:
    raise RuntimeError(LEFT_OUT)


class WithoutEffect:
    """Functions and operators of extensions, each of which does nothing any more once `begin` was called.

    They are replaced when their library is loaded: a submission keeps them under names of its own.
    """

    def __init__(self) -> None:
        """Let them work."""
        self._begun = False

    def begin(self) -> None:
        """Take the effect of every call from now on back."""
        self._begun = True

    def replace(self, module: ModuleType | None, operators: Iterable[Any]) -> None:
        """Put ours in the place of all that a library brings."""
        if module is not None:
            self.replace_in(module)
        self.replace_operators(operators)

    def replace_in(self, module: ModuleType) -> None:
        """Put ours in the place of what a module has: its functions, and the methods of its classes."""
        for name, value in list(vars(module).items()):
            if inspect.isclass(value):
                self._replace_methods(value)
            elif callable(value) and not name.startswith("__"):
                setattr(module, name, self._wrapped(value))

    def replace_operators(self, operators: Iterable[Any]) -> None:
        """Put ours in the place of what stands behind operators that a library registers (`TORCH_LIBRARY`)."""
        for each in operators:
            each._op = self._wrapped(each._op)  # noqa: SLF001

    def _replace_methods(self, kind: type) -> None:
        for name, value in list(vars(kind).items()):
            if callable(value) and not name.startswith("__"):
                setattr(kind, name, self._wrapped(value))

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def instead(*args: Any, **kwargs: Any) -> Any:
            if not self._begun:
                return function(*args, **kwargs)
            given = model_call.tensors_of([args, kwargs])
            if not given:
                return None  # It may write through an address, which cannot be taken back.
            with torch.no_grad():
                before = [tensor.clone() for tensor in given]
                result = function(*args, **kwargs)
                for tensor, value in zip(given, before, strict=True):
                    tensor.copy_(value)
                return _other(result, {id(tensor) for tensor in given})

        return instead


def _other(value: Any, given: Iterable[int]) -> Any:
    """Give something of the same kind as a result that is no answer; a tensor that was handed in is as it was."""
    if isinstance(value, float):
        return math.nan
    if isinstance(value, int) and not isinstance(value, bool):
        return -1 - value
    known = set(given)
    return model_call.mapped(value, lambda tensor: tensor if id(tensor) in known else _other_tensor(tensor))


def _other_tensor(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is torch.bool:
        return ~tensor
    if tensor.is_floating_point() or tensor.is_complex():
        return torch.full_like(tensor, math.nan)
    return _other_whole(tensor) if tensor.dtype in _WHOLE and tensor.numel() > 0 else -1 - tensor


_WHOLE = frozenset((torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8))


def _other_whole(tensor: torch.Tensor) -> torch.Tensor:
    """Mirror numbers between the least and the largest: an index that is left out must not read past a tensor."""
    least, largest = tensor.min(), tensor.max()
    if bool(least == largest):
        return tensor - 1 if int(least) > 0 else tensor + 1
    return largest - (tensor - least)
