"""The region that outputs are answered in: torch's allocator in it, and room for copies of what lies elsewhere."""

import ctypes
import mmap
import os

import torch

from evaluator.devices.memory import ALIGNMENT_BYTES


class Arena:
    """The output region. Without the allocator's library every output is copied."""

    def __init__(self, region: mmap.mmap, copy_bytes: int) -> None:
        """Keep the first `copy_bytes` of `region` for copies."""
        self._region = region
        self._copy_bytes = copy_bytes
        self._copied_bytes = 0
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(region))
        self._library: ctypes.CDLL | None = None

    def install(self, descriptor: int) -> None:
        """Have every CPU tensor from now on live behind the room for copies."""
        library = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
        os.close(descriptor)
        room_bytes = len(self._region) - self._copy_bytes
        library.warpgrade_arena_install(ctypes.c_void_p(self._base + self._copy_bytes), ctypes.c_uint64(room_bytes))
        self._library = library

    def poison(self, byte: int, ahead_bytes: int) -> None:
        """Fill free memory, so that what a call does not write is not an earlier call's result."""
        self._copied_bytes = 0
        if self._library is not None:
            self._library.warpgrade_arena_poison(ctypes.c_int(byte), ctypes.c_uint64(ahead_bytes))

    def offset_bytes(self, tensor: torch.Tensor) -> int | None:
        """Say where in the region a tensor lies, if it lies there whole."""
        if self._library is None or tensor.numel() == 0:  # An empty tensor has no address.
            return None
        start = tensor.data_ptr() - self._base
        storage = tensor.untyped_storage()
        first = storage.data_ptr() - self._base
        inside = self._copy_bytes <= first and first + storage.nbytes() <= len(self._region)
        return start if inside else None

    def copy(self, tensor: torch.Tensor) -> int | None:
        """Copy a tensor into the room for copies, contiguous; None where there is no room left."""
        size_bytes = tensor.numel() * tensor.element_size()
        offset = self._copied_bytes
        if offset + size_bytes > self._copy_bytes:
            return None
        if size_bytes:
            target = torch.frombuffer(self._region, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
            target.view(tensor.shape).copy_(tensor)
        self._copied_bytes = -(-(offset + size_bytes) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return offset
