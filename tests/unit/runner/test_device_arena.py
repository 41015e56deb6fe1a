"""The arena of outputs on a GPU: its allocator, and the choice of memory for a copy. Without a GPU."""

import ctypes
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from evaluator.runner import device_arena
from evaluator.runner.device_arena import GpuArena

NATIVE = Path(device_arena.__file__).parent / "native" / "device_arena.cpp"
MIB = 1 << 20
START = 1 << 40


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("library") / "arena.so"
    subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", "-o", str(path), str(NATIVE), "-ldl"], check=True)
    loaded = ctypes.CDLL(str(path))
    loaded.warpgrade_device_allocate.restype = ctypes.c_uint64
    loaded.warpgrade_device_arena_outside.restype = ctypes.c_uint64
    loaded.warpgrade_device_arena_install(ctypes.c_uint64(START), ctypes.c_uint64(16 * MIB))
    return loaded


def test_the_allocator_counts_what_does_not_fit_into_the_range(library):
    def allocate(mib):
        return library.warpgrade_device_allocate(ctypes.c_int64(mib * MIB), 0, None)

    assert [allocate(10), allocate(6)] == [START, START + 10 * MIB]
    assert library.warpgrade_device_arena_outside() == 0
    library.warpgrade_device_free(ctypes.c_uint64(START), ctypes.c_int64(10 * MIB), 0, None)
    assert allocate(12) == 0  # Without a driver, there is no memory outside.
    assert library.warpgrade_device_arena_outside() == 1
    assert allocate(10) == START


class Allocator:
    """An allocator that gives these blocks in turn, then new ones outside of the region."""

    def __init__(self, *blocks):
        self.blocks, self.outside, self.given = list(blocks), 0, 0

    def empty(self, shape, *, dtype, device):
        self.given += 1
        if not self.blocks:
            self.outside += 1
            return torch.zeros(shape, dtype=dtype)
        return self.blocks.pop(0).view(dtype).view(shape)


REGION = torch.zeros(96, dtype=torch.uint8)
INSIDE, OTHER, OUTSIDE = REGION[:16], REGION[32:48], [torch.zeros(16, dtype=torch.uint8) for _ in range(3)]


@pytest.fixture
def arena(monkeypatch):
    """Make an arena with such an allocator; `make_room` gives its own blocks."""

    def make(*blocks, after_room=()):
        arena, allocator = object.__new__(GpuArena), Allocator(*blocks)
        arena._start, arena._size_bytes = REGION.data_ptr(), REGION.numel()
        arena._copies = []
        arena._library = SimpleNamespace(warpgrade_device_arena_outside=lambda: allocator.outside)
        arena._make_room = lambda: allocator.blocks.extend(after_room)
        monkeypatch.setattr(device_arena.torch, "empty", allocator.empty)
        return arena, allocator

    return make


@pytest.mark.parametrize(
    ("blocks", "after_room", "offset", "given"),
    [
        ([INSIDE], [], 0, 1),
        ([OTHER], [], 32, 1),
        ([*OUTSIDE, OTHER], [], 32, 4),
        ([OUTSIDE[0]], [OTHER], 32, 3),
        ([], [OUTSIDE[0], OTHER], 32, 3),
        ([], [], None, 2),
    ],
)
def test_a_copy_goes_to_the_first_block_inside_of_the_region(arena, blocks, after_room, offset, given):
    """Free blocks outside of the region come before free memory inside."""
    values = torch.arange(4.0)
    made, allocator = arena(*blocks, after_room=after_room)
    assert made.copy(values.view(2, 2).t()) == offset
    assert allocator.given == given
    if offset is not None:
        assert REGION[offset : offset + 16].view(torch.float32).tolist() == [0.0, 2.0, 1.0, 3.0]


def test_an_empty_tensor_needs_no_memory(arena):
    made, allocator = arena()
    assert made.copy(torch.zeros(0, 3)) == 0
    assert allocator.given == 0


def test_the_pool_is_closed_while_blocks_of_other_streams_are_freed(monkeypatch):
    done = []
    names = ("_cuda_beginAllocateToPool", "_cuda_endAllocateToPool", "_cuda_releasePool")
    for name in names:
        monkeypatch.setattr(torch._C, name, lambda *_, name=name: done.append(name), raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("synchronize"))
    monkeypatch.setattr(device_arena.torch, "empty", lambda *_, **__: done.append("empty") or REGION.clone())
    arena = object.__new__(GpuArena)
    arena._pool, arena._in_use, arena._copies = SimpleNamespace(id=(0, 1)), False, []
    arena.poison(7, 16)
    begin, end, release = names
    assert done == [begin, "empty", "synchronize"]
    done.clear()
    arena.poison(7, 16)
    freed = ["synchronize", end, release, *["empty", "synchronize"] * 2]
    assert done == [*freed, begin, "empty", "synchronize"]
