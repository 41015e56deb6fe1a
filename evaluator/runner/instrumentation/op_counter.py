"""Observer of computing work in a call: PyTorch operations, and functions of the submission's extensions.

The observer runs in extra calls only, which are not timed and do not decide about the answers, because observation
slows down a call and sees all tensors. A submission in the same process can forge the counts; they can cost a pass,
never earn a pass (see `evaluator/judge/own_kernels/own_kernels.py`).
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from evaluator.protocol.frames import Counted
from evaluator.protocol.op_mode import OperationMode
from evaluator.protocol.operations import LIBRARY, computes


class OpCounter:
    """Counter, active inside `with` blocks, in the thread of the block."""

    def __init__(self, launches: Callable[[], tuple[int, int]]) -> None:
        """Start at zero. `launches` returns the kernel launches so far: own, and library."""
        self._launches = launches
        self._operations = 0
        self._own = 0
        self._mixed = 0
        self._thread_id: int | None = None
        self._in_own_call = False
        self._mode = _Operations(self)
        self._before = launches()

    def __enter__(self) -> Self:
        self._mode.__enter__()  # type: ignore[no-untyped-call]
        self._thread_id = threading.get_ident()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread_id = None
        self._mode.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]

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
        self._op_counter.operation(func)
        return func(*args, **(kwargs or {}))
