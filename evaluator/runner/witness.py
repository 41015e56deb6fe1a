"""What computes in a call: operations of PyTorch's, and functions of extensions that the submission had built.

It watches extra calls alone, which are neither compared nor timed, because it slows a call down and sees all of it. It
sits beside the submission, so a submission can lie to it: what it says can cost a pass, never make one (see
`evaluator/judge/ownership.py`).
"""

import sys
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Self

from evaluator.dispatch import OperationMode
from evaluator.frames import Counted

LIBRARY = frozenset(("aten", "prims", "quantized", "mkldnn", "mkl", "onednn", "torchvision", "inductor"))
NO_WORK = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "empty_permuted", "zeros", "zeros_like", "ones", "ones_like"),
        *("full", "full_like", "fill", "fill_", "zero_", "arange", "scalar_tensor", "new_empty", "new_empty_strided"),
        *("new_zeros", "new_ones", "new_full", "rand", "randn", "rand_like", "randn_like", "randint"),
        *("copy_", "_to_copy", "clone", "contiguous", "cat", "stack", "resize_", "set_", "lift_fresh", "alias"),
        *("detach", "_local_scalar_dense", "_unsafe_view", "_reshape_alias", "view_as_real", "is_same_size"),
        *("record_stream", "is_pinned", "_pin_memory", "resolve_conj", "resolve_neg", "constant_pad_nd"),
    )
)
"""Operations that make, move or describe tensors: an honest kernel needs some of them around it."""


class Witness:
    """Counts, in the calls that it is entered for."""

    def __init__(self, extensions: Callable[[], Collection[str]], launches: Callable[[], tuple[int, int]]) -> None:
        """Start at none. `extensions` gives the names of the modules built; `launches` own and library's so far."""
        self._extensions = extensions
        self._launches = launches
        self._operations = 0
        self._own = 0
        self._mixed = 0
        self._open: list[int] = []
        self._mode = _Operations(self)
        self._before = launches()
        self._names: Collection[str] = ()

    def __enter__(self) -> Self:
        self._names = frozenset(self._extensions())
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        sys.setprofile(self._event)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setprofile(None)
        self._mode.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._open.clear()

    def counted(self) -> Counted:
        """Give what was seen so far."""
        own, library = (now - before for now, before in zip(self._launches(), self._before, strict=True))
        return Counted(
            launches=max(own, 0),
            library_calls=self._operations + max(library, 0),
            own_calls=self._own,
            mixed_calls=self._mixed,
        )

    def operation(self, operator: Any) -> None:
        """Take note of an operation that PyTorch dispatches."""
        name = getattr(operator, "overloadpacket", operator).__name__
        if operator.namespace not in LIBRARY:
            self._own += 1
        elif not operator.is_view and name not in NO_WORK:
            self._operations += 1

    def _event(self, _: Any, event: str, function: Any) -> None:
        """Follow calls of C functions that belong to an extension; one that has PyTorch compute is `mixed`."""
        if event not in ("c_call", "c_return", "c_exception") or getattr(function, "__module__", "") not in self._names:
            return
        if event == "c_call":
            self._open.append(self._operations)
            self._own += 1
        elif self._open and self._open.pop() != self._operations:
            self._mixed += 1


class _Operations(OperationMode):
    """Tells the witness of every operation, from Python or from C++."""

    def __init__(self, witness: Witness) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._witness = witness

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._witness.operation(func)
        return func(*args, **(kwargs or {}))
