"""Observer of computing work in a call: PyTorch operations, and functions of the submission's extensions.

The observer runs in extra calls only, which are not timed and do not decide about the answers, because observation
slows down a call and sees all tensors. A submission in the same process can forge the counts; they can cost a pass,
never earn a pass (see `evaluator/judge/exhibits/own_kernels.py`).
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import torch

from evaluator.protocol.frames import Counted
from evaluator.protocol.operations import LIBRARY, OperationMode, computes, flop_of, moved_bytes_of, operation_name

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
