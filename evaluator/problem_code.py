"""A problem's code: exceptions become errors of the problem, `cuda` means the device of use, tensors must be dense."""

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode

from evaluator.devices.out_of_memory import ran_out
from evaluator.errors import ProblemError
from evaluator.protocol.pytree import tensors_of


@contextlib.contextmanager
def author_code(path: str, doing: str) -> Iterator[None]:
    """Context for the problem's code in the file `path`: an exception becomes a ProblemError with the line number.

    Exhausted memory becomes a MemoryError.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (ProblemError, KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit too: every exception is the problem's
        if ran_out(error):
            raise MemoryError(str(error)) from None
        # A folder's reference may consist of several files.
        own = [
            e
            for e in traceback.extract_tb(error.__traceback__)
            if e.filename == path or e.filename.startswith(f"{path}/")
        ]
        where = f"{own[-1].filename}, line {own[-1].lineno}" if own else path
        raise ProblemError(
            f"{where}: {doing} failed: {type(error).__name__}: {error}",
            hint="the fault is in the problem, not in the submission: fix its reference.py",
        ) from None


_Generator = torch.Generator


class CudaMeans(TorchFunctionMode):
    """Context in which `device="cuda"` and `.cuda()` mean another device: a problem's file may name a GPU."""

    def __init__(self, device: torch.device) -> None:
        """Map `cuda` to `device`."""
        super().__init__()
        self._device = device
        self._outer: list[type[torch.Generator]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call `func` on the device of use."""
        if func is torch.Tensor.cuda:
            return args[0].to(self._device)
        if func is torch.device:  # The construction of a device keeps its name.
            return func(*args, **(kwargs or {}))
        return func(*map(self._mapped, args), **{name: self._mapped(each) for name, each in (kwargs or {}).items()})

    def __enter__(self) -> Self:
        """Map the devices of generators too: no mode sees their construction."""
        device = self._device if self._device.type == "cuda" else torch.device("cpu")  # No other device has generators.

        class Generator(_Generator):
            def __new__(cls, device: Any = "cpu") -> Any:
                return _Generator(mapped(device))

        def mapped(named: Any) -> Any:
            return device if torch.device(named).type == "cuda" else named

        self._outer.append(torch.Generator)
        torch.Generator = Generator  # type: ignore[misc]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        """End the mapping."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.Generator = self._outer.pop()  # type: ignore[misc]

    def _mapped(self, value: Any) -> Any:
        is_cuda = isinstance(value, torch.device) and value.type == "cuda"
        is_named = isinstance(value, str) and value.partition(":")[0] == "cuda"
        return self._device if is_cuda or is_named else value


_NO_ARITHMETIC = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float4_e2m1fn_x2)
"""Dtypes in which PyTorch neither compares nor converts."""


def refuse_other_layouts(name: str, value: Any, source: str) -> None:
    """Raise ProblemError if `value`, which `source` returned in the problem `name`, has a tensor that is not dense.

    The same for a dtype without arithmetic.
    """
    for tensor in tensors_of(value):
        if tensor.dtype in _NO_ARITHMETIC:
            dtype = str(tensor.dtype).removeprefix("torch.")
            raise ProblemError(
                f"{name}: {source} returns a tensor in {dtype}, which no grade can compare or hand over",
                hint="give its bytes: tensor.view(torch.uint8)",
            )
        if tensor.is_nested or tensor.layout is not torch.strided or tensor.is_quantized:
            kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else "sparse"
            raise ProblemError(
                f"{name}: {source} returns a {kind} tensor, which no grade can compare or hand over",
                hint="give its parts as dense tensors: values and indices, or values and offsets",
            )
