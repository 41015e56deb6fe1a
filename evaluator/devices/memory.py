"""Shared memory of judge and runner, and the page of words for both sides' signals.

A host region is a sealed `memfd`. Without the seal a runner could truncate it, and the judge's next access would end in
SIGBUS. A GPU region is an allocation of its own, without any other memory of the judge.

    byte 0      go: the judge's stream writes a call's ticket, the runner's stream waits for that value
    byte 64     done: the same in the other direction
    byte 128    one key of 16 bytes for each call of a spot check, written by the judge
    byte 512    one digest of 16 bytes for each call of a spot check, written by the runner's stream
    byte 1024   one `OutputLocation` for each output named in the call's frame, in that order

The runner writes the places, so the reader checks every number. The page holds the places, and no frame, because a
kernel of the judge reads the outputs before any later frame could arrive.
"""

import fcntl
import functools
import math
import mmap
import os
import secrets
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from evaluator.devices import driver
from evaluator.errors import JudgeFailed

if TYPE_CHECKING:
    import torch


# linux/fcntl.h and linux/memfd.h; Python's fcntl module defines them from 3.12 on under other conditions.
_F_ADD_SEALS = 1033
_F_SEAL_SEAL = 0x1
_F_SEAL_SHRINK = 0x2
_F_SEAL_GROW = 0x4
_F_SEAL_WRITE = 0x8

MAX_DIMENSIONS = 64
"""Torch creates tensors of more dimensions, but then cannot copy them."""
_MAX_NUMBER = 2**62

ALIGNMENT_BYTES = 256
"""The most that torch's CPU and CUDA allocators guarantee; vectorized kernels rely on 16."""
_ROTATION_BYTES = 1 << 16


class Region(Protocol):
    """Memory of `size_bytes`, mapped in this process; other processes can map it through `descriptor`."""

    size_bytes: int
    descriptor: int

    @property
    def flat(self) -> "torch.Tensor":
        """The whole region as a tensor of bytes, which keeps the mapping alive."""

    def close(self) -> None:
        """Free the memory. Tensors that still refer to the region keep it mapped in this process."""


class HostRegion:
    """A region of host memory."""

    def __init__(self, size_bytes: int) -> None:
        """Reserve the region. Pages cost nothing until written."""
        self.size_bytes = max(size_bytes, mmap.PAGESIZE)
        self.descriptor = os.memfd_create("warpgrade", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.descriptor, self.size_bytes)
            fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_SEAL)
            self.buffer = mmap.mmap(self.descriptor, self.size_bytes)
        except OSError as error:
            os.close(self.descriptor)
            raise JudgeFailed(
                f"cannot allocate {self.size_bytes} bytes of shared memory: {error.strerror}",
                hint="grade at a smaller size (--size small)",
            ) from None

    @functools.cached_property
    def flat(self) -> "torch.Tensor":
        """The whole region as a tensor of bytes, which keeps the mapping alive."""
        return host_tensor(self.buffer)

    def close(self) -> None:
        """Free the memory. Tensors that still refer to the region keep its pages alive."""
        os.close(self.descriptor)
        # Never buffer.close(): torch holds no buffer export, and a tensor would refer to unmapped memory. Torch holds
        # the mmap object, though, so the last tensor's end unmaps the memory.
        self.__dict__.pop("flat", None)
        del self.buffer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class DeviceRegion:
    """A region of GPU memory in the current context. The size is rounded up to the GPU's granularity."""

    def __init__(self, device: int, size_bytes: int) -> None:
        """Allocate the memory. Raises JudgeFailed if the GPU has too little."""
        self._memory = _allocated(device, size_bytes)
        self.size_bytes = self._memory.size_bytes
        self.descriptor = driver.export_memory(self._memory)
        self.flat = device_tensor(self._memory)

    def close(self) -> None:
        """Free the memory. No tensor may refer to the region any more."""
        del self.flat
        os.close(self.descriptor)
        driver.free_memory(self._memory)


_FREED_WITHIN_S = 5.0
_ROUND_S = 0.05


def _allocated(device: int, size_bytes: int) -> driver.Mapping:
    """Allocate GPU memory; where there is too little, release PyTorch's unused blocks, and try again for 5 s.

    Memory of a runner that has just ended is free only after the driver's clean-up. Raises JudgeFailed.
    """
    import torch

    deadline_s = time.monotonic() + _FREED_WITHIN_S
    while True:
        try:
            return driver.create_memory(device, size_bytes)
        except driver.DriverError as error:
            if error.name != "CUDA_ERROR_OUT_OF_MEMORY" or time.monotonic() >= deadline_s:
                free_bytes, total_bytes = torch.cuda.mem_get_info()
                raise JudgeFailed(
                    f"cannot allocate {_gib(size_bytes)} of GPU memory: {error}; {_gib(free_bytes)} of "
                    f"{_gib(total_bytes)} is free, and the judge holds {_gib(torch.cuda.memory_reserved())}",
                    hint="end other programs on this GPU, or grade at a smaller size (--size small)",
                ) from None
        torch.cuda.empty_cache()
        time.sleep(_ROUND_S)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"


class SharedMemory(NamedTuple):
    """Memory shared by the judge and one runner: inputs, outputs, and optionally a device library and a page.

    The first `copy_bytes` of the outputs are for copies; the rest is the arena of the runner's allocator, with
    `poison_bytes` poisoned before a call. The `page` holds the words by which a GPU's two streams wait for each other,
    or the two processes of a window on a host.
    `probe_bytes` is the memory traffic of a calibration call. `kernels` is the descriptor of the judge's cubin.
    A window has at most `window_calls` calls. The judge reads the first `warm_bytes` of a call's inputs just
    before the call, so that the L2 cache holds them.
    """

    inputs: Region
    outputs: Region
    copy_bytes: int
    library: int | None
    poison_bytes: int
    page: HostRegion | None = None
    probe_bytes: int = 0
    kernels: int | None = None
    window_calls: int = 1
    warm_bytes: int = 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors to pass to the runner."""
        passed = [self.inputs.descriptor, self.outputs.descriptor]
        passed += [self.library] if self.library is not None else []
        passed += [self.page.descriptor] if self.page is not None else []
        return (*passed, self.kernels) if self.kernels is not None else tuple(passed)


def host_tensor(buffer: mmap.mmap) -> "torch.Tensor":
    """Return host memory as a tensor of bytes."""
    import torch

    return torch.frombuffer(buffer, dtype=torch.uint8)


def device_tensor(memory: driver.Mapping) -> "torch.Tensor":
    """Return mapped GPU memory as a tensor of bytes."""
    import torch

    return torch.as_tensor(_DeviceBytes(memory), device="cuda")


class _DeviceBytes:
    """Memory with the CUDA Array Interface 3, which PyTorch, CuPy and Numba adopt without a copy."""

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
    """Return a part of a region, given as bytes, as a tensor; strides count elements and are not negative.

    The stride of a dimension of one element has no effect, so a stride beyond the region is cut to the region's length.
    Torch multiplies strides (`view_as_real` by two), and a product beyond 64 bits would overflow.

    Raises ValueError if any element would lie outside the buffer, or if torch cannot count the elements.
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
    """Yield an offset for each tensor of a call, different from call to call.

    The first offset is random, so that no cache keyed by addresses hits. Raises JudgeFailed if the region is too small.
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
    """Return the region size for `payload_bytes`, with slack for changing addresses."""
    return _aligned(payload_bytes) + max(_aligned(payload_bytes), 16 * _ROTATION_BYTES)


def sealed_file(content: bytes) -> int:
    """Return the descriptor of immutable memory with `content`.

    A runner under the same user could reopen the descriptor of an ordinary file for writing; a sealed memfd prevents
    that.
    """
    descriptor = os.memfd_create("library", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    fcntl.fcntl(descriptor, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_WRITE | _F_SEAL_SEAL)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _extent(shape: Sequence[int]) -> int:
    """Return the product of the nonzero sizes; torch's own product of them must not overflow either."""
    return math.prod(max(size, 1) for size in shape)


def _aligned(size_bytes: int) -> int:
    return -(-max(size_bytes, 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _aligned_down(offset_bytes: int) -> int:
    return offset_bytes // ALIGNMENT_BYTES * ALIGNMENT_BYTES


GO, DONE, KEYS, DIGESTS, PLACES = 0, 64, 128, 512, 1024
KEY_BYTES = DIGEST_BYTES = 16
MAX_CALLS, MAX_SPOT_CALLS = 32, 16
"""Limits on the calls of a window, and of a spot check."""
MAX_PLACES = 4096
"""Limit on the tensors of an answer, equal to the limit on a list in a frame. Gradients of a backward pass count."""

PLACE = struct.Struct(f"<QII{MAX_DIMENSIONS}q")
PAGE_BYTES = -(-(PLACES + MAX_PLACES * PLACE.size) // mmap.PAGESIZE) * mmap.PAGESIZE
"""Two MiB. A call touches only the places of its outputs."""


class OutputLocation(NamedTuple):
    """Location of an output: path, offset from the start of the region, strides in elements."""

    path: str
    offset_bytes: int
    item_bytes: int
    strides: tuple[int, ...]


def write_places(places: Iterable[OutputLocation], output_paths: Sequence[str]) -> bytes:
    """Serialize the locations of the outputs at `output_paths`, in the page's layout from `PLACES` on.

    A path without a location gets elements of 0 bytes.
    """
    by_path = {location.path: location for location in places}
    missing = OutputLocation("", 0, 0, ())
    return b"".join(_spelt(by_path.get(path, missing)) for path in output_paths[:MAX_PLACES])


def _spelt(location: OutputLocation) -> bytes:
    strides = location.strides[:MAX_DIMENSIONS]
    padded = (*strides, *(0,) * (MAX_DIMENSIONS - len(strides)))
    return PLACE.pack(location.offset_bytes, location.item_bytes, len(strides), *padded)
