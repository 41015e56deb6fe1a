"""Seeing what PyTorch does below a piece of Python code, operation by operation."""

from torch.utils._python_dispatch import TorchDispatchMode


class OperationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode whose `__torch_dispatch__` is called as it stands.

    PyTorch wraps that of other modes, to keep its compiler out of it, and imports the compiler for that: a second of
    the first call. What is compiled already runs under a mode as it did.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
