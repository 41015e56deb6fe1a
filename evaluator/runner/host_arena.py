"""Output region on the host: memory of PyTorch's CPU allocator, and space for copies of other tensors."""

import ctypes
import os

import torch

from evaluator.devices.memory import ALIGNMENT_BYTES


class HostArena:
    """Output region on the host. Without the allocator library, the runner copies every output."""

    device = "cpu"

    def __init__(self, region: torch.Tensor, copy_bytes: int) -> None:
        """Reserve the first `copy_bytes` of `region`, a byte tensor, for copies."""
        self._region = region
        self._copy_bytes = copy_bytes
        self._copied_bytes = 0
        self._most_copied_bytes = 0
        self._library: ctypes.CDLL | None = None

    def install(self, descriptor: int) -> None:
        """Allocate all further CPU tensors in the region, behind the space for copies."""
        library = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
        os.close(descriptor)
        start = self._region.data_ptr() + self._copy_bytes
        room_bytes = self._region.numel() - self._copy_bytes
        library.warpgrade_arena_install(ctypes.c_void_p(start), ctypes.c_uint64(room_bytes))
        self._library = library

    def open(self) -> None:
        """Do nothing: after `install`, every tensor lies in the region."""

    def poison(self, byte: int, ahead_bytes: int) -> None:
        """Fill free memory with `byte`, so unwritten output elements cannot contain an earlier call's result."""
        self._region[: self._most_copied_bytes].fill_(byte)
        self._copied_bytes = 0
        if self._library is not None:
            self._library.warpgrade_arena_poison(ctypes.c_int(byte), ctypes.c_uint64(ahead_bytes))

    def offset_bytes(self, tensor: torch.Tensor) -> int | None:
        """Return a tensor's offset in the region; None unless the region contains the whole storage."""
        if self._library is None or tensor.numel() == 0:  # Empty tensors have no address.
            return None
        base = self._region.data_ptr()
        storage = tensor.untyped_storage()
        first = storage.data_ptr() - base
        inside = self._copy_bytes <= first and first + storage.nbytes() <= self._region.numel()
        return tensor.data_ptr() - base if inside else None

    def probe(self, *, forked: bool) -> None:
        """Do nothing: on the host an empty call has no work."""

    def copy(self, tensor: torch.Tensor) -> int | None:
        """Copy a tensor into the copy space, contiguous; return None if the space is exhausted."""
        size_bytes = tensor.numel() * tensor.element_size()
        offset = self._copied_bytes
        if offset + size_bytes > self._copy_bytes:
            return None
        if size_bytes:
            target = self._region[offset : offset + size_bytes].view(tensor.dtype)
            target.view(tensor.shape).copy_(tensor)
        self._copied_bytes = -(-(offset + size_bytes) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._most_copied_bytes = max(self._most_copied_bytes, self._copied_bytes)
        return offset
