"""Detection of exhausted memory in the judge, by the messages of PyTorch and CUDA's libraries."""

import contextlib
from collections.abc import Iterator

import torch

_WORDS = ("defaultcpuallocator", "alloc_failed", "allocation_failed", "not_initialized", "out of memory")
"""Messages of PyTorch's CPU allocator, of CUDA and of CUDA's libraries, none of which has an exception class.

Exhausted memory also fails the initialization of a library.
"""


def ran_out(error: BaseException) -> bool:
    """Return whether exhausted memory caused the error.

    >>> ran_out(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"))
    True
    """
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        words in str(error).lower() for words in _WORDS
    )


@contextlib.contextmanager
def out_of_memory() -> Iterator[None]:
    """Raise MemoryError for exhausted memory inside the context."""
    try:
        yield
    except RuntimeError as error:
        if ran_out(error):
            raise MemoryError(str(error)) from None
        raise
