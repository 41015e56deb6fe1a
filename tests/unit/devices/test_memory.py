"""Memory that a hostile process can map: it can be written, but neither resized nor made to be read out of bounds."""

import fcntl
import mmap
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.devices import memory
from evaluator.devices.memory import ALIGNMENT_BYTES, HostRegion, places, room_for, sealed_file, strided
from evaluator.errors import JudgeFailed

SIZE = 4 * mmap.PAGESIZE
FLOAT = torch.float32


@pytest.fixture(scope="module")
def region():
    with HostRegion(SIZE) as made:
        yield made


@pytest.mark.parametrize("size", [0, 1, SIZE - 1, SIZE + 1, 10 * SIZE])
def test_a_region_cannot_be_resized_by_who_holds_its_descriptor(size):
    with HostRegion(SIZE) as region:
        theirs = os.dup(region.descriptor)
        with pytest.raises(PermissionError):
            os.ftruncate(theirs, size)
        os.close(theirs)
        assert os.fstat(region.descriptor).st_size == SIZE
        assert region.buffer[SIZE - 1] == 0


def test_nobody_can_add_a_seal_to_a_region():
    with HostRegion(SIZE) as region:
        for seal in (0x8, 0x10):  # F_SEAL_WRITE, F_SEAL_FUTURE_WRITE
            with pytest.raises(PermissionError):
                fcntl.fcntl(region.descriptor, 1033, seal)


def test_a_region_is_shared_with_who_maps_it():
    with HostRegion(10) as region:
        assert region.size_bytes == mmap.PAGESIZE
        theirs = mmap.mmap(region.descriptor, region.size_bytes)
        theirs[5] = 7
        assert region.buffer[5] == 7
        theirs.close()


def test_closing_a_region_leaves_its_tensors_readable():
    region = HostRegion(SIZE)
    tensor = strided(region.flat, FLOAT, (4,), (1,), 0)
    tensor.fill_(3)
    region.close()
    assert tensor.sum() == 12
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(region.descriptor)


def test_memory_that_cannot_be_had_is_the_judges_failure_and_leaks_nothing():
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(JudgeFailed, match="shared memory"):
        HostRegion(2**62)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_sealed_file_holds_its_content_for_ever():
    descriptor = sealed_file(b"library")
    assert os.read(descriptor, 100) == b"library"
    again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
    for attempt in (lambda: os.pwrite(again, b"x", 0), lambda: os.ftruncate(again, 0)):
        with pytest.raises(PermissionError):
            attempt()
    with pytest.raises(PermissionError):
        mmap.mmap(again, 7)
    os.close(again)
    os.close(descriptor)


HOSTILE = {
    "one element too many": ((SIZE // 4 + 1,), (1,), 0),
    "beyond the end by its offset": ((1,), (1,), SIZE),
    "beyond the end by its stride": ((2,), (SIZE // 4,), 0),
    "the last dimension reaches over": ((2, 2), (1, SIZE // 4 - 1), 4),
    "an offset near 2**62": ((1,), (1,), 2**62),
    "an offset beyond 64 bits": ((1,), (1,), 2**64),
    "an offset before the start": ((1,), (1,), -4),
    "between two elements": ((1,), (1,), 2),
    "a negative size": ((-1,), (1,), 0),
    "two negative sizes": ((-2, -2), (1, 1), 0),
    "a negative stride": ((2,), (-1,), 64),
    "negative strides that cancel": ((2, 2), (8, -8), 0),
    "a product that wraps around 64 bits": ((2**32 + 1, 2**32), (2**32, 1), 0),
    "a stride that wraps around 64 bits": ((2, 2**62), (2**62, 4), 0),
    "more elements than torch can count": ((2**62, 2**62), (0, 0), 0),
    "a size beyond 64 bits": ((2**64,), (0,), 0),
    "a stride beyond 64 bits": ((1,), (2**64,), 0),
    "no elements of impossible sizes": ((0, 2**62, 2**62), (0, 0, 0), 0),
    "no elements beyond the end": ((0,), (1,), SIZE + 4),
    "65 dimensions": ((1,) * 65, (1,) * 65, 0),
    "more strides than sizes": ((2,), (1, 1), 0),
    "fewer strides than sizes": ((2, 2), (1,), 0),
}


@pytest.mark.parametrize(("shape", "strides", "offset"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_view_is_refused(region, shape, strides, offset):
    with pytest.raises(ValueError, match=r"do not describe|does not lie|too large"):
        strided(region.flat, FLOAT, shape, strides, offset)


def test_64_dimensions_are_looked_at(region):
    tensor = strided(region.flat, FLOAT, (1,) * 64, (2**62,) * 64, 0)
    assert tensor.dim() == 64
    assert tensor.clone().numel() == 1


def test_a_stride_that_addresses_nothing_is_not_multiplied_out_of_64_bits(region):
    numbers = strided(region.flat, torch.complex64, (1, 8), (2**62, 1), 0)
    parts = torch.view_as_real(numbers)
    assert parts.reshape(-1, 2).shape == (8, 2)
    assert max(parts.stride()) <= 2 * SIZE
    column = strided(region.flat, FLOAT, (8, 1), (1, 8), 0)
    assert column.stride() == (1, 8)  # What can be is kept: a column's, as a transposed row has it.


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.bfloat16, torch.float64, torch.complex128])
def test_a_whole_region_can_be_looked_at(region, dtype):
    count = SIZE // dtype.itemsize
    tensor = strided(region.flat, dtype, (count,), (1,), 0)
    assert tensor.dtype is dtype
    assert tensor.clone().numel() == count
    with pytest.raises(ValueError, match="does not lie"):
        strided(region.flat, dtype, (count,), (1,), dtype.itemsize)


numbers = st.integers(0, 12) | st.integers(-3, 2**66) | st.sampled_from([2**31, 2**32, 2**61, 2**62, 2**63 - 1, 2**64])


@given(
    shape=st.lists(numbers, max_size=5),
    strides=st.lists(numbers, max_size=5),
    offset=numbers | st.integers(0, SIZE + 64),
    dtype=st.sampled_from([torch.bool, torch.float16, torch.float32, torch.float64, torch.complex128]),
)
def test_what_is_accepted_lies_in_the_region(shape, strides, offset, dtype):
    with HostRegion(SIZE) as region:
        base = torch.frombuffer(region.buffer, dtype=torch.uint8).data_ptr()
        try:
            tensor = strided(region.flat, dtype, shape, strides, offset)
        except ValueError:
            return
        assert list(tensor.shape) == shape
        if tensor.numel() == 0:
            return
        last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        assert tensor.data_ptr() == base + offset
        assert tensor.data_ptr() % dtype.itemsize == 0
        assert tensor.data_ptr() + (last + 1) * dtype.itemsize <= base + SIZE


@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    data=st.data(),
    dtype=st.sampled_from([torch.uint8, torch.float32, torch.float64]),
)
def test_an_honest_view_is_accepted_and_reads_what_was_written(shape, data, dtype):
    order = data.draw(st.permutations(range(len(shape))))
    value = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype).permute(order)
    extent = value.numel() * dtype.itemsize
    offset = data.draw(st.integers(0, (SIZE - extent) // dtype.itemsize)) * dtype.itemsize
    with HostRegion(SIZE) as region:
        shared = strided(region.flat, dtype, value.shape, value.stride(), offset)
        shared.copy_(value)
        assert torch.equal(shared, value)
        assert shared.stride() == value.stride()
        outside = torch.frombuffer(region.buffer, dtype=torch.uint8).clone()
        outside[offset : offset + extent] = 0
        assert not outside.any()


@given(sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=8))
def test_places_are_aligned_disjoint_and_inside(sizes):
    total = room_for(sum(size + ALIGNMENT_BYTES for size in sizes))
    offsets = list(places(sizes, total))
    assert len(offsets) == len(sizes)
    assert all(offset % ALIGNMENT_BYTES == 0 for offset in offsets)
    ends = [offset + max(size, 1) for offset, size in zip(offsets, sizes, strict=True)]
    assert all(end <= start for end, start in zip(ends, offsets[1:], strict=False))
    assert offsets[0] >= 0
    assert ends[-1] <= total


def test_places_differ_from_call_to_call():
    total = room_for(1 << 20)
    assert len({next(places([1 << 20], total)) for _ in range(64)}) > 32


def test_places_fill_a_region_exactly_and_no_further():
    assert list(places([256, 1], 512)) == [0, 256]
    with pytest.raises(JudgeFailed, match="do not fit"):
        list(places([256, 257], 512))


class FullGpu:
    """A driver whose GPU has room from the allocation number `free_at` on."""

    def __init__(self, monkeypatch, free_at, name="CUDA_ERROR_OUT_OF_MEMORY"):
        self.allocations = self.released = 0
        self._free_at, self._name = free_at, name
        self._clock_s = 0.0
        monkeypatch.setattr(memory.driver, "create_memory", self.create)
        monkeypatch.setattr(memory.time, "monotonic", lambda: self._clock_s)
        monkeypatch.setattr(memory.time, "sleep", self.sleep)
        monkeypatch.setattr(torch.cuda, "empty_cache", self.release)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (3 << 30, 80 << 30))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 70 << 30)

    def create(self, _device, size_bytes):
        self.allocations += 1
        if self.allocations < self._free_at:
            raise memory.driver.DriverError("cuMemCreate", self._name, "out of memory")
        return memory.driver.Mapping(4096, size_bytes, 1)

    def sleep(self, seconds):
        self._clock_s += seconds

    def release(self):
        self.released += 1


def test_memory_that_an_ended_runner_frees_late_is_waited_for(monkeypatch):
    gpu = FullGpu(monkeypatch, free_at=4)
    assert memory._allocated(0, 100).size_bytes == 100
    assert gpu.allocations == 4
    assert gpu.released == 3


def test_a_gpu_that_stays_full_is_an_error_with_what_is_free_and_what_the_judge_holds(monkeypatch):
    FullGpu(monkeypatch, free_at=10**9)
    with pytest.raises(JudgeFailed, match=r"6\.0 GiB .*3\.0 GiB of 80\.0 GiB is free, and the judge holds 70\.0 GiB"):
        memory._allocated(0, 6 << 30)


def test_another_error_of_the_driver_is_not_waited_for(monkeypatch):
    gpu = FullGpu(monkeypatch, free_at=10**9, name="CUDA_ERROR_INVALID_VALUE")
    with pytest.raises(JudgeFailed, match="CUDA_ERROR_INVALID_VALUE"):
        memory._allocated(0, 100)
    assert gpu.allocations == 1
