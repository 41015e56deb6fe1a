"""Observer of computing work in a call: PyTorch operations, and functions of the submission's extensions.

The observer runs in extra calls only, neither compared nor timed, because observation slows down a call and sees all
tensors. A submission in the same process can forge the counts; they can cost a pass, never earn a pass (see
`evaluator/judge/own_kernels/own_kernels.py`).
"""

import sys
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Self

from evaluator.protocol.frames import Counted
from evaluator.protocol.op_mode import OperationMode
from evaluator.protocol.operations import LIBRARY, computes


class OpCounter:
    """Counter, active inside `with` blocks."""

    def __init__(
        self,
        extensions: Callable[[], Collection[str]],
        operators: Callable[[], Collection[object]],
        launches: Callable[[], tuple[int, int]],
    ) -> None:
        """Start at zero.

        `extensions` returns the names of built modules, `operators` the functions behind their operators, and
        `launches` the kernel launches so far: own, and library.
        """
        self._extensions = extensions
        self._operators = operators
        self._launches = launches
        self._operations = 0
        self._own = 0
        self._mixed = 0
        self._open: list[int] = []
        self._mode = _Operations(self)
        self._before = launches()
        self._names: Collection[str] = ()
        self._functions: Collection[int] = ()

    def __enter__(self) -> Self:
        self._names = frozenset(self._extensions())
        self._functions = frozenset(id(function) for function in self._operators())
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
        """Return the counts so far."""
        own, library = (now - before for now, before in zip(self._launches(), self._before, strict=True))
        return Counted(
            launches=max(own, 0),
            library_calls=self._operations + max(library, 0),
            own_calls=self._own,
            mixed_calls=self._mixed,
        )

    def operation(self, operator: Any) -> None:
        """Count a dispatched PyTorch operation, if computing."""
        if operator.namespace in LIBRARY and computes(operator):
            self._operations += 1

    def _event(self, _: Any, event: str, function: Any) -> None:
        """Track calls of extension functions. Calls with computing PyTorch operations inside count as `mixed`."""
        if event not in ("c_call", "c_return", "c_exception") or not self._is_own(function):
            return
        if event == "c_call":
            self._open.append(self._operations)
            self._own += 1
        elif self._open and self._open.pop() != self._operations:
            self._mixed += 1

    def _is_own(self, function: Any) -> bool:
        return id(function) in self._functions or getattr(function, "__module__", "") in self._names


class _Operations(OperationMode):
    """Reports every dispatched operation, from Python or C++, to the witness."""

    def __init__(self, op_counter: OpCounter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._op_counter = op_counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._op_counter.operation(func)
        return func(*args, **(kwargs or {}))
