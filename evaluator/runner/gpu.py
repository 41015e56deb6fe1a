"""Device `cuda`, inside of a runner: the judge's memory under PyTorch's allocator, and the gate of each call.

The runner's stream waits at the gate for a word that the judge's stream writes when the inputs are there, and writes
one itself when the call's work is over. Both are operations of the GPU's queues: no process waits, none is trusted.
"""

import ctypes
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from evaluator.devices import driver
from evaluator.devices.memory import device_tensor
from evaluator.devices.page import DONE, GO, PAGE_BYTES, PLACES, Place, write_places
from evaluator.protocol.frames import Items, Load, Node, Table, TensorView

_DEVICE = 0
"""Only the GPU that was chosen is visible in here."""
_STREAM = 0
"""The default stream of old, which PyTorch works on. Streams that a submission makes itself wait for it, and it for
them, unless they were made not to; then it is the submission's to join them."""


def warm_up(device: str) -> None:
    """Make this process's context on a GPU, which takes a good part of a second; elsewhere there is none to make."""
    if device == "cuda":
        _ask_cuda()
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()


def _ask_cuda() -> None:
    """Have PyTorch ask CUDA, from now on, which GPUs there are.

    The starter has it ask NVML, which behind the walls may name other GPUs than the one that this process can use; then
    PyTorch takes that one for missing.
    """
    os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
    torch.cuda._device_count_nvml = lambda: -1  # noqa: SLF001 - what it gives where NVML does not answer


class Gate:
    """The words in the shared page, on the stream that a submission's work is queued on."""

    def __init__(self, descriptor: int) -> None:
        """Map the page and pin it."""
        self._page = mmap.mmap(descriptor, PAGE_BYTES)
        os.close(descriptor)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        self._address = driver.register_host(start, PAGE_BYTES)

    def wait(self, ticket: int) -> None:
        """Let nothing that is queued from now on begin before the judge opens the gate for `ticket`."""
        driver.stream_wait(_STREAM, self._address + GO, ticket)

    def leave(self, ticket: int, places: Iterable[Place], named: Sequence[str]) -> None:
        """Say where the `named` outputs are, and have the GPU say when all that is queued is done."""
        text = write_places(places, named)
        self._page[PLACES : PLACES + len(text)] = text
        driver.stream_write(_STREAM, self._address + DONE, ticket)


class Gpu:
    """The memory that the judge shares; as an arena, the room for outputs."""

    device = "cuda"

    def __init__(
        self, frame: Load, inputs: int, outputs: int, *, library: int, page: int, make_room: Callable[[], None]
    ) -> None:
        """Map the regions `inputs` and `outputs`, load the allocator's `library` and the `page`."""
        self._scratch = torch.zeros(frame.probe_bytes // 4, dtype=torch.int32, device="cuda")
        if frame.tf32 != "default":
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = frame.tf32 == "on"
        self.inputs = device_tensor(driver.import_memory(_DEVICE, inputs, frame.input_bytes))
        self._probe = self.inputs[: 4 * self._scratch.numel()].view(torch.int32)
        arena = driver.import_memory(_DEVICE, outputs, frame.output_bytes)
        self._start, self._size_bytes = arena.address, arena.size_bytes
        self._make_room = make_room
        self.gate = Gate(page)
        path = f"/proc/self/fd/{library}"
        ctypes.CDLL(path).warpgrade_device_arena_install(
            ctypes.c_uint64(self._start), ctypes.c_uint64(self._size_bytes)
        )
        allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "warpgrade_device_allocate", "warpgrade_device_free")
        os.close(library)
        os.close(inputs)
        os.close(outputs)
        self._pool = torch.cuda.MemPool(allocator.allocator())  # type: ignore[no-untyped-call]
        self._allocator = allocator
        self._side: torch.cuda.Stream | None = None
        self._in_use = False
        self._copies: list[torch.Tensor] = []

    def open(self) -> None:
        """Have PyTorch's allocator take its memory from the arena from now on, for every thread.

        Before a model is made where the judge is to change its weights; else what a constructor makes lies elsewhere.
        """
        if not self._in_use:
            torch._C._cuda_beginAllocateToPool(_DEVICE, self._pool.id)  # noqa: SLF001 - use_mem_pool is for one thread, and backward has others
            self._in_use = True

    def poison(self, byte: int, ahead_bytes: int) -> None:
        """Fill the memory that the next outputs will lie in, and wait until this GPU has nothing left to do."""
        self.open()
        self._copies.clear()
        block = torch.empty(max(ahead_bytes, 1), dtype=torch.uint8, device="cuda")
        block.fill_(byte)
        del block
        torch.cuda.synchronize()

    def offset_bytes(self, tensor: torch.Tensor) -> int | None:
        """Say where in the region a tensor lies, if it lies there whole."""
        if tensor.numel() == 0:
            return None
        storage = tensor.untyped_storage()
        first = storage.data_ptr() - self._start
        inside = first >= 0 and first + storage.nbytes() <= self._size_bytes
        return tensor.data_ptr() - self._start if inside else None

    def probe(self, *, forked: bool) -> None:
        """Launch one kernel that reads as much as a call's inputs, and writes as much.

        A GPU changes over to another context for kernels only, not for words, and the first accesses after that find
        no addresses translated. But where one stream waits for another, it may change over to let them wait.
        """
        if not forked:
            torch.bitwise_not(self._probe, out=self._scratch)
            return
        here = torch.cuda.current_stream()
        side = self._side = self._side or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(here)
        with torch.cuda.stream(side):
            torch.bitwise_not(self._probe, out=self._scratch)
        here.wait_stream(side)

    def copy(self, tensor: torch.Tensor) -> int | None:
        """Copy a tensor into the region, contiguous; None where there is no room left."""
        copy = tensor.clone(memory_format=torch.contiguous_format)
        if tensor.numel() == 0:
            return 0
        if self.offset_bytes(copy) is None:
            self._make_room()
            copy = tensor.clone(memory_format=torch.contiguous_format)
        self._copies.append(copy)
        return self.offset_bytes(copy)


def places(node: Node, path: str = "output") -> Iterator[Place]:
    """List the tensors of an answer with the paths that the judge knows them by."""
    match node:
        case TensorView(offset_bytes=int(offset), dtype=dtype, strides=strides):
            yield Place(path, offset, getattr(torch, dtype).itemsize, strides)
        case Items(items=items):
            for index, item in enumerate(items):
                yield from places(item, f"{path}[{index}]")
        case Table(keys=keys, items=items):
            for key, item in zip(keys, items, strict=True):
                yield from places(item, f"{path}.{key}")
        case _:
            return
