"""Memory that the judge makes and a runner maps: sealed `memfd` regions, with tensors laid out in them.

A region is sealed against resizing. Without the seal a runner could cut it short, and the judge's next look at it
would end in SIGBUS.
"""

import fcntl
import math
import mmap
import os
import secrets
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from evaluator.errors import JudgeFailed

if TYPE_CHECKING:
    import torch

# linux/fcntl.h and linux/memfd.h; Python's fcntl module has them from 3.12 on under other conditions.
_F_ADD_SEALS = 1033
_F_SEAL_SEAL = 0x1
_F_SEAL_SHRINK = 0x2
_F_SEAL_GROW = 0x4
_F_SEAL_WRITE = 0x8

_MAX_DIMENSIONS = 64
"""Torch makes tensors of more, and then cannot copy them."""
_MAX_NUMBER = 2**62

ALIGNMENT_BYTES = 256
"""What torch's own CPU and CUDA allocators promise at most; vectorised kernels rely on 16."""
_ROTATION_BYTES = 1 << 16


class Region:
    """A piece of memory of `size_bytes`, mapped here and mappable by whoever holds `descriptor`."""

    def __init__(self, size_bytes: int) -> None:
        """Reserve the region. Pages cost nothing until they are written."""
        self.size_bytes = max(size_bytes, mmap.PAGESIZE)
        self.descriptor = os.memfd_create("warpgrade", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.descriptor, self.size_bytes)
            fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_SEAL)
            self.buffer = mmap.mmap(self.descriptor, self.size_bytes)
        except OSError as error:
            os.close(self.descriptor)
            raise JudgeFailed(
                f"{self.size_bytes} bytes of shared memory cannot be had: {error.strerror}",
                hint="grade at a smaller size (--size small)",
            ) from None

    def close(self) -> None:
        """Give the memory back. Tensors that still look into it keep its pages alive."""
        os.close(self.descriptor)
        # Never buffer.close(): torch does not count as a user of the buffer, and a tensor would look into nothing. It
        # holds the mmap object, though, so that is unmapped with the last tensor.
        del self.buffer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SharedMemory(NamedTuple):
    """What judge and one runner share: inputs, outputs, and the library of the device, if there is one.

    The first `copy_bytes` of the outputs are for copies; behind them is the room of the runner's allocator.
    """

    inputs: Region
    outputs: Region
    copy_bytes: int
    library: int | None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What is passed to the runner."""
        passed = (self.inputs.descriptor, self.outputs.descriptor)
        return passed if self.library is None else (*passed, self.library)


def strided(
    buffer: mmap.mmap, dtype: "torch.dtype", shape: Sequence[int], strides: Sequence[int], offset_bytes: int
) -> "torch.Tensor":
    """Look at a part of a region as a tensor; strides in elements, none of them negative.

    Raises ValueError where any element would lie outside of the buffer, and where torch cannot count them.
    """
    import torch

    if len(shape) != len(strides) or any(size < 0 for size in shape) or any(step < 0 for step in strides):
        raise ValueError("shape and strides do not describe a tensor")
    if len(shape) > _MAX_DIMENSIONS or any(number > _MAX_NUMBER for number in (_extent(shape), *strides)):
        raise ValueError("shape and strides are too large")
    item_bytes = dtype.itemsize
    elements = 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if offset_bytes < 0 or offset_bytes % item_bytes or offset_bytes + elements * item_bytes > len(buffer):
        raise ValueError("the tensor does not lie in the region")
    if elements == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    flat = torch.frombuffer(buffer, dtype=dtype, count=elements, offset=offset_bytes)
    return flat.as_strided(tuple(shape), tuple(strides))


def places(sizes_bytes: Sequence[int], region_bytes: int) -> Iterator[int]:
    """Choose an offset for each of the tensors of one call, different from call to call.

    The start is drawn at random, so that nothing keyed by an address is met again. Raises JudgeFailed when full.
    """
    needed = sum(_aligned(size) for size in sizes_bytes)
    slack = region_bytes - needed
    if slack < 0:
        raise JudgeFailed(f"{needed} bytes of inputs do not fit into a region of {region_bytes}")
    offset = _aligned_down(secrets.randbelow(slack + 1))
    for size in sizes_bytes:
        yield offset
        offset += _aligned(size)


def room_for(payload_bytes: int) -> int:
    """Say how large a region must be for `payload_bytes`, with space left for addresses to change."""
    return _aligned(payload_bytes) + max(_aligned(payload_bytes), 16 * _ROTATION_BYTES)


def sealed_file(content: bytes) -> int:
    """Put `content` into memory that nobody can change any more, and give its descriptor.

    A descriptor of a file of ours could be reopened for writing by a runner under the same user; this one cannot.
    """
    descriptor = os.memfd_create("library", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    fcntl.fcntl(descriptor, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_WRITE | _F_SEAL_SEAL)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _extent(shape: Sequence[int]) -> int:
    """Multiply the sizes, empty dimensions left out: torch's own product of them must not overflow either."""
    return math.prod(max(size, 1) for size in shape)


def _aligned(size_bytes: int) -> int:
    return -(-max(size_bytes, 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _aligned_down(offset_bytes: int) -> int:
    return offset_bytes // ALIGNMENT_BYTES * ALIGNMENT_BYTES
