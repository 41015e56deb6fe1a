"""Memory that ran out on the judge's own side, whatever PyTorch and CUDA's libraries call it."""

import contextlib
from collections.abc import Iterator

import torch

_WORDS = ("defaultcpuallocator", "alloc_failed", "allocation_failed", "not_initialized", "out of memory")
"""PyTorch's allocator for the CPU, CUDA and its libraries, which cannot get ready either: none has an exception of its
own for it."""


def ran_out(error: BaseException) -> bool:
    """Say whether that is why something failed.

    >>> ran_out(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"))
    True
    """
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        words in str(error).lower() for words in _WORDS
    )


@contextlib.contextmanager
def out_of_memory() -> Iterator[None]:
    """Have a MemoryError where memory runs out in this context."""
    try:
        yield
    except RuntimeError as error:
        if ran_out(error):
            raise MemoryError(str(error)) from None
        raise
