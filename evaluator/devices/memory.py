"""Memory that the judge makes and a runner maps, with tensors laid out in it: on the host, or on a GPU.

A region of the host is a sealed `memfd`. Without the seal a runner could cut it short, and the judge's next look at it
would end in SIGBUS. One of a GPU is an allocation by itself: nothing else of the judge's lies in it.
"""

import fcntl
import functools
import math
import mmap
import os
import secrets
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from evaluator.devices import driver
from evaluator.errors import JudgeFailed

if TYPE_CHECKING:
    import torch

# linux/fcntl.h and linux/memfd.h; Python's fcntl module has them from 3.12 on under other conditions.
_F_ADD_SEALS = 1033
_F_SEAL_SEAL = 0x1
_F_SEAL_SHRINK = 0x2
_F_SEAL_GROW = 0x4
_F_SEAL_WRITE = 0x8

MAX_DIMENSIONS = 64
"""Torch makes tensors of more, and then cannot copy them."""
_MAX_NUMBER = 2**62

ALIGNMENT_BYTES = 256
"""What torch's own CPU and CUDA allocators promise at most; vectorised kernels rely on 16."""
_ROTATION_BYTES = 1 << 16


class Region(Protocol):
    """A piece of memory of `size_bytes`, mapped here and mappable by whoever holds `descriptor`."""

    size_bytes: int
    descriptor: int

    @property
    def flat(self) -> "torch.Tensor":
        """All of it as one tensor of bytes, which keeps it mapped."""

    def close(self) -> None:
        """Give the memory back. Tensors that still look into it keep it mapped here."""


class HostRegion:
    """A region of the host's memory."""

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

    @functools.cached_property
    def flat(self) -> "torch.Tensor":
        """All of it as one tensor of bytes, which keeps it mapped."""
        return host_tensor(self.buffer)

    def close(self) -> None:
        """Give the memory back. Tensors that still look into it keep its pages alive."""
        os.close(self.descriptor)
        # Never buffer.close(): torch does not count as a user of the buffer, and a tensor would look into nothing. It
        # holds the mmap object, though, so that is unmapped with the last tensor.
        self.__dict__.pop("flat", None)
        del self.buffer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class DeviceRegion:
    """A region of a GPU's memory, in the context that is current. Its size is rounded up to the GPU's granularity."""

    def __init__(self, device: int, size_bytes: int) -> None:
        """Take the memory. Raises JudgeFailed where the GPU has too little."""
        try:
            self._memory = driver.create_memory(device, size_bytes)
        except driver.DriverError as error:
            raise JudgeFailed(
                f"{size_bytes / 2**30:.1f} GiB of GPU memory cannot be had: {error}",
                hint="end what else uses this GPU, or grade at a smaller size (--size small)",
            ) from None
        self.size_bytes = self._memory.size_bytes
        self.descriptor = driver.export_memory(self._memory)
        self.flat = device_tensor(self._memory)

    def close(self) -> None:
        """Give the memory back. No tensor may look into it any more."""
        del self.flat
        os.close(self.descriptor)
        driver.free_memory(self._memory)


class SharedMemory(NamedTuple):
    """What judge and one runner share: inputs, outputs, the library of the device and its page, where there are some.

    The first `copy_bytes` of the outputs are for copies; behind them is the room of the runner's allocator, of which
    `poison_bytes` are poisoned before a call. The `page`
    holds the words by which a GPU's two queues wait for each other; `probe_bytes` is what an empty call reads there.
    """

    inputs: Region
    outputs: Region
    copy_bytes: int
    library: int | None
    poison_bytes: int
    page: HostRegion | None = None
    probe_bytes: int = 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What is passed to the runner."""
        passed = [self.inputs.descriptor, self.outputs.descriptor]
        passed += [self.library] if self.library is not None else []
        return (*passed, self.page.descriptor) if self.page is not None else tuple(passed)


def host_tensor(buffer: mmap.mmap) -> "torch.Tensor":
    """Look at host memory as one tensor of bytes."""
    import torch

    return torch.frombuffer(buffer, dtype=torch.uint8)


def device_tensor(memory: driver.Mapping) -> "torch.Tensor":
    """Look at mapped GPU memory as one tensor of bytes."""
    import torch

    return torch.as_tensor(_DeviceBytes(memory), device="cuda")


class _DeviceBytes:
    """Memory in the form that PyTorch, CuPy and Numba take over without a copy (CUDA Array Interface 3)."""

    def __init__(self, memory: driver.Mapping) -> None:
        self.__cuda_array_interface__ = {
            "shape": (memory.size_bytes,),
            "typestr": "|u1",
            "data": (memory.address, False),
            "strides": None,
            "version": 3,
        }


def strided(
    flat: "torch.Tensor", dtype: "torch.dtype", shape: Sequence[int], strides: Sequence[int], offset_bytes: int
) -> "torch.Tensor":
    """Look at a part of a region, given as its bytes, as a tensor; strides in elements, none of them negative.

    A dimension of one element has no use for its stride, so one that leads out of the region is cut to its length:
    torch multiplies strides (`view_as_real`, by two), and a product beyond 64 bits is no number of its any more.

    Raises ValueError where any element would lie outside of the buffer, and where torch cannot count them.
    """
    import torch

    if len(shape) != len(strides) or any(size < 0 for size in shape) or any(step < 0 for step in strides):
        raise ValueError("shape and strides do not describe a tensor")
    if len(shape) > MAX_DIMENSIONS or any(number > _MAX_NUMBER for number in (_extent(shape), *strides)):
        raise ValueError("shape and strides are too large")
    item_bytes = dtype.itemsize
    elements = 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
    if offset_bytes < 0 or offset_bytes % item_bytes or offset_bytes + elements * item_bytes > flat.numel():
        raise ValueError("the tensor does not lie in the region")
    if elements == 0:
        return torch.empty(tuple(shape), dtype=dtype, device=flat.device)
    piece = flat[offset_bytes : offset_bytes + elements * item_bytes].view(dtype)
    return piece.as_strided(tuple(shape), tuple(min(step, flat.numel() // item_bytes) for step in strides))


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
