"""Device `cuda` inside a runner: the judge's memory under PyTorch's allocator, and the gate of each call.

The runner's stream waits for a word in host memory, written by the judge's stream once the inputs are in place. After
the call the runner's stream writes a second word. Both are stream memory operations of the GPU: no process sits between
the two streams, and neither side relies on the other's host code.
"""

import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from evaluator.devices import driver
from evaluator.devices.memory import (
    DIGEST_BYTES,
    DIGESTS,
    DONE,
    GO,
    KEY_BYTES,
    KEYS,
    PAGE_BYTES,
    PLACES,
    OutputLocation,
    device_tensor,
    write_places,
)
from evaluator.devices.spot_kernels import SpotKernels
from evaluator.protocol.frames import DictItems, Done, Items, Load, Masked, Node, TensorView
from evaluator.protocol.pytree import answer_spans

_DEVICE = 0
"""Only the leased GPU is visible in this process."""
_STREAM = 0
"""Legacy default stream, used by PyTorch. Blocking streams synchronize with the legacy stream. A submission must join
its own non-blocking streams.
"""


def warm_up(device: str) -> None:
    """Create this process's CUDA context, which takes most of a second. Other devices need no context."""
    if device == "cuda":
        _ask_cuda()
        torch.bitwise_not(torch.zeros(1, dtype=torch.int32, device="cuda"))  # The kernel of `GpuArena.probe`.
        torch.cuda.synchronize()


def _ask_cuda() -> None:
    """Make PyTorch count devices through CUDA instead of NVML.

    The starter selects NVML. Inside the sandbox NVML may list other GPUs than the usable GPU, and PyTorch would then
    report the usable GPU as missing.
    """
    os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
    torch.cuda._device_count_nvml = lambda: -1  # noqa: SLF001 - what it gives where NVML does not answer


class Gate:
    """Synchronization words in the shared page, accessed from the submission's stream."""

    def __init__(self, descriptor: int, spot_kernels: SpotKernels, inputs: int, outputs: int) -> None:
        """Map and pin the page. The regions start at the addresses `inputs` and `outputs`."""
        self._spot_kernels = spot_kernels
        self._inputs, self._outputs = inputs, outputs
        self._page = mmap.mmap(descriptor, PAGE_BYTES)
        os.close(descriptor)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        self._address = driver.register_host(start, PAGE_BYTES)

    def wait(self, ticket: int) -> None:
        """Block all work queued later on the stream until the judge opens the gate for `ticket`."""
        driver.stream_wait(_STREAM, self._address + GO, ticket)

    def unmask(self, ticket: int, number: int, masked: Masked) -> None:
        """Queue the wait for the release of call `number`, and the removal of the mask by the key in the page."""
        kernels, key_address = self._spot_kernels, self._address + KEYS + KEY_BYTES * number
        kernels.wait(self._address + GO, ticket + number, key_address, stream=_STREAM)
        kernels.mask(self._inputs + masked.offset_bytes, masked.size_bytes, stream=_STREAM)

    def digest(self, number: int, answer: Done) -> None:
        """Queue the digest of an answer's tensors, written into the page as that of call `number`."""
        spans = [(self._outputs + offset, size) for offset, size in answer_spans(answer)]
        self._spot_kernels.digest(spans, self._address + DIGESTS + DIGEST_BYTES * number, stream=_STREAM)

    def leave(self, ticket: int, places: Iterable[OutputLocation], output_paths: Sequence[str]) -> None:
        """Write the locations of outputs at `output_paths`, and queue the completion signal behind all queued work."""
        text = write_places(places, output_paths)
        self._page[PLACES : PLACES + len(text)] = text
        driver.stream_write(_STREAM, self._address + DONE, ticket)


class GpuArena:
    """Device memory shared with the judge; implements `Arena` for the output region."""

    device = "cuda"

    def __init__(
        self,
        frame: Load,
        inputs: int,
        outputs: int,
        *,
        library: int,
        page: int,
        kernels: int,
        make_room: Callable[[], None],
    ) -> None:
        """Map the regions `inputs` and `outputs`, and load the allocator `library`, the `page` and the `kernels`."""
        self._scratch = torch.zeros(frame.probe_bytes // 4, dtype=torch.int32, device="cuda")
        if frame.tf32 != "default":
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = frame.tf32 == "on"
        region = driver.import_memory(_DEVICE, inputs, frame.input_bytes)
        self.inputs = device_tensor(region)
        self._probe = self.inputs[: 4 * self._scratch.numel()].view(torch.int32)
        arena = driver.import_memory(_DEVICE, outputs, frame.output_bytes)
        self._start, self._size_bytes = arena.address, arena.size_bytes
        self._make_room = make_room
        image = os.pread(kernels, os.fstat(kernels).st_size, 0)  # The position is shared with other runners.
        self.gate = Gate(page, SpotKernels(image), region.address, arena.address)
        path = f"/proc/self/fd/{library}"
        self._library = ctypes.CDLL(path)
        self._library.warpgrade_device_arena_outside.restype = ctypes.c_uint64
        self._library.warpgrade_device_arena_install(ctypes.c_uint64(self._start), ctypes.c_uint64(self._size_bytes))
        allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "warpgrade_device_allocate", "warpgrade_device_free")
        os.close(library)
        os.close(inputs)
        os.close(outputs)
        os.close(kernels)
        self._pool = torch.cuda.MemPool(allocator.allocator())  # type: ignore[no-untyped-call]
        self._allocator = allocator
        self._side: torch.cuda.Stream | None = None
        self._in_use = False
        self._copies: list[torch.Tensor] = []

    def open(self) -> None:
        """Route PyTorch's CUDA allocations of all threads to the arena.

        Called before model construction if the judge changes weights. Otherwise a constructor's tensors stay outside.
        """
        if not self._in_use:
            torch._C._cuda_beginAllocateToPool(_DEVICE, self._pool.id)  # noqa: SLF001 - use_mem_pool is for one thread, and backward has others
            self._in_use = True

    def poison(self, byte: int, ahead_bytes: int) -> None:
        """Fill the memory of the next outputs with `byte`, and synchronize the GPU."""
        self._copies.clear()
        self._reclaim()
        self.open()
        block = torch.empty(max(ahead_bytes, 1), dtype=torch.uint8, device="cuda")
        block.fill_(byte)
        del block
        torch.cuda.synchronize()

    def _reclaim(self) -> None:
        """Close the pool until PyTorch's allocator has freed the blocks of `Tensor.record_stream`.

        The allocator takes an open pool for a capture of a graph, and keeps such blocks until the end of the capture.
        They would fill the arena.
        """
        if not self._in_use:
            return
        torch.cuda.synchronize()
        torch._C._cuda_endAllocateToPool(_DEVICE, self._pool.id)  # noqa: SLF001 - see `open`
        torch._C._cuda_releasePool(_DEVICE, self._pool.id)  # noqa: SLF001
        self._in_use = False
        for _ in range(2):  # The first allocation records events, the second finds them complete.
            torch.empty(1, device="cuda")
            torch.cuda.synchronize()

    def offset_bytes(self, tensor: torch.Tensor) -> int | None:
        """Return a tensor's offset in the region; None unless the region contains the whole storage."""
        if tensor.numel() == 0:
            return None
        storage = tensor.untyped_storage()
        first = storage.data_ptr() - self._start
        inside = first >= 0 and first + storage.nbytes() <= self._size_bytes
        return tensor.data_ptr() - self._start if inside else None

    def probe(self, *, forked: bool) -> None:
        """Launch one kernel that reads as many bytes as a call's inputs, and writes as many.

        A GPU switches contexts for kernels, not for stream memory operations. The first accesses after a switch miss
        the TLB. With `forked`, two streams wait for each other: the GPU may switch contexts during these waits.
        """
        if not forked:
            torch.bitwise_not(self._probe, out=self._scratch)
            return
        stream = torch.cuda.current_stream()
        side = self._side = self._side or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(stream)
        with torch.cuda.stream(side):
            torch.bitwise_not(self._probe, out=self._scratch)
        stream.wait_stream(side)

    def copy(self, tensor: torch.Tensor) -> int | None:
        """Copy a tensor into the region, contiguous; return None if the region is full."""
        if tensor.numel() == 0:
            return 0
        if (copy := self._room_like(tensor)) is None:
            self._make_room()
            copy = self._room_like(tensor)
        if copy is None:
            return None
        self._copies.append(copy.copy_(tensor))
        return self.offset_bytes(copy)

    def _room_like(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Allocate a contiguous tensor in the region; return None if the region is full.

        The allocator also offers free blocks that an earlier allocation left outside the region. They are held here
        until a block inside is found, or until a new block lies outside, too.
        """
        blocks_outside = []
        before = self._library.warpgrade_device_arena_outside()
        while self._library.warpgrade_device_arena_outside() == before:
            block = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            if self.offset_bytes(block) is not None:
                return block
            blocks_outside.append(block)
        return None


def answer_places(answer: Done) -> Iterator[OutputLocation]:
    """Yield the locations of an answer's tensors, gradients included, with the judge's paths."""
    yield from places(answer.outputs)
    for name, view in (answer.gradients or {}).items():
        if view is not None:
            yield from places(view, f"gradient of {name}")


def places(node: Node, path: str = "output") -> Iterator[OutputLocation]:
    """Yield the locations of an answer's tensors, with the judge's paths."""
    match node:
        case TensorView(offset_bytes=int(offset), dtype=dtype, strides=strides):
            yield OutputLocation(path, offset, getattr(torch, dtype).itemsize, strides)
        case Items(items=items):
            for index, item in enumerate(items):
                yield from places(item, f"{path}[{index}]")
        case DictItems(keys=keys, items=items):
            for key, item in zip(keys, items, strict=True):
                yield from places(item, f"{path}.{key}")
        case _:
            return
