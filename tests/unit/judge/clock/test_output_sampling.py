"""Samples inside the clock on a GPU: every output that can be returned is among them. The kernel runs as C++ here."""

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from evaluator.devices.memory import MAX_PLACES, PAGE_BYTES, PLACES, OutputLocation, write_places
from evaluator.errors import ProblemError
from evaluator.findings import Code
from evaluator.judge.answer.output_checks import late
from evaluator.judge.clock.clock_kernels import SAMPLES, SLOT_BYTES, Sampling, shares
from evaluator.judge.reference.reference import by_path
from evaluator.judge.tensors.output_views import OutputViews
from evaluator.protocol.frames import DictItems, Items, TensorView
from evaluator.protocol.model_call import Result
from evaluator.protocol.pytree import dtype_name, leaves, mapped
from evaluator.runner.device_arena import places

REGION_BYTES = 1 << 22
SHIM = """
#include <cstdint>
#define __global__
#define __device__
#define __shared__ static
#define __syncthreads()
struct Index { unsigned x; };
static Index threadIdx{0}, blockIdx{0}, blockDim{1}, gridDim{1};
static std::uint64_t __umul64hi(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}
#include "gather.cu"
extern "C" void gather(unsigned blocks, const unsigned char* region, std::uint64_t region_bytes, unsigned char* page,
                       const Shape* shapes, const std::int32_t* which, const std::int64_t* positions,
                       std::int64_t count, unsigned char* slots) {
  gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    warpgrade_gather(region, region_bytes, page, shapes, which, positions, count, slots);
  }
}
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    """The judge's kernel as a function of the host's: one thread a block, one block after the other."""
    folder = tmp_path_factory.mktemp("gather")
    (folder / "shim.cpp").write_text(SHIM)
    library = folder / "gather.so"
    include = Path(__file__).parents[4] / "evaluator" / "judge" / "native"
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", f"-I{include}", folder / "shim.cpp", "-o", library]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library)).gather


def whole(tensor):
    """Give all that a tensor reaches, gaps between its elements included."""
    span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((span if tensor.numel() else 0,), (1,))


class Runner:
    """A region with an answer in it, and a page that says where."""

    def __init__(self, kernel, value, gradients=None, blocks=64):
        self.kernel, self.blocks = kernel, blocks
        self.region = torch.zeros(REGION_BYTES, dtype=torch.uint8)
        self.page = (ctypes.c_char * PAGE_BYTES)()
        self.end = 256
        result = Result(
            mapped(value, self._inside), {name: self._inside(each) for name, each in (gradients or {}).items()}
        )
        self.tensors = by_path(result)
        self.places = list(places(self._node(result.outputs)))
        for name, gradient in result.gradients.items():
            self.places += places(self._node(gradient), f"gradient of {name}")

    def _inside(self, tensor):
        """Put a tensor into the region, with its strides."""
        flat = whole(tensor)
        start, self.end = self.end, self.end + -(-flat.numel() * tensor.element_size() // 256) * 256
        assert self.end <= REGION_BYTES
        inside = self.region[start : start + flat.numel() * tensor.element_size()].view(tensor.dtype)
        return inside.copy_(flat).as_strided(tensor.shape, tensor.stride())

    def _node(self, value):
        if isinstance(value, torch.Tensor):
            offset = value.data_ptr() - self.region.data_ptr() if value.numel() else None
            return TensorView(dtype_name(value.dtype), tuple(value.shape), tuple(value.stride()), offset)
        if isinstance(value, dict):
            return DictItems(keys=list(value), items=[self._node(item) for item in value.values()])
        return Items(is_tuple=isinstance(value, tuple), items=[self._node(item) for item in value])

    def sampled(self):
        """Take samples of what the region holds now."""
        sampling = Sampling(self.tensors, "cpu")
        text = write_places(self.places, sampling.paths)
        self.page[PLACES : PLACES + len(text)] = text
        positions = sampling.positions()
        slots = torch.full((len(positions), SLOT_BYTES), 0xA5, dtype=torch.uint8)
        addresses = (sampling.shapes, sampling.which, positions)
        self.kernel(
            ctypes.c_uint(self.blocks),
            ctypes.c_void_p(self.region.data_ptr()),
            ctypes.c_uint64(REGION_BYTES),
            ctypes.byref(self.page),
            *(ctypes.c_void_p(each.data_ptr()) for each in addresses),
            ctypes.c_int64(len(positions)),
            ctypes.c_void_p(slots.data_ptr()),
        )
        return sampling.samples(positions, slots)

    def found(self, samples):
        return late([OutputViews(path, tensor, tensor, None) for path, tensor in self.tensors.items()], samples)


def noise(*shape, dtype=torch.float32):
    return (torch.rand(shape) * 100 + 1).to(dtype)


ANSWERS = {
    "a matrix": noise(40, 50),
    "a transposed matrix": noise(40, 50).T,
    "rows with padding": noise(40, 50)[:, :33],
    "a transposed row": noise(1, 50).T,
    "an element of every fifth": noise(50)[::5][:1],
    "a number": noise(),
    "nine dimensions": noise(2, 3, 2, 3, 2, 3, 2, 3, 2),
    "nine dimensions that cannot be merged": noise(2, 3, 2, 3, 2, 3, 2, 3, 2).permute(8, 3, 1, 4, 0, 6, 2, 7, 5),
    "sixty-four dimensions": noise(*(2, 1, 1, 1) * 16),
    "bytes": noise(3000, dtype=torch.uint8),
    "booleans": noise(3000) > 50,
    "integers": noise(3000, dtype=torch.int64),
    "half precision": noise(3000, dtype=torch.bfloat16),
    "eight bits": noise(3000, dtype=torch.float8_e4m3fn),
    "complex": noise(3000, dtype=torch.complex64),
    "the largest elements": noise(3000, dtype=torch.complex128),
    "a tuple with a dict": (noise(3), {"a": [noise(4), noise(2, 2)], 7: noise(5)}),
    "one that is empty beside": (noise(0), noise(3), noise(4, 0, 2)),
    "expanded": noise(1, 50).expand(40, 50),
    "a thousand": [noise(2, 2) for _ in range(1000)],
}


@pytest.mark.parametrize("blocks", [1, 64])
@pytest.mark.parametrize("value", ANSWERS.values(), ids=ANSWERS)
def test_every_tensor_is_sampled_and_a_change_behind_the_clock_is_seen(kernel, value, blocks):
    runner = Runner(kernel, value, blocks=blocks)
    samples = runner.sampled()
    assert set(samples) == {path for path, tensor in leaves(value, "output") if tensor.numel()}
    assert runner.found(samples) is None
    for path in list(samples)[:: max(len(samples) // 5, 1)]:
        memory = whole(runner.tensors[path])
        before = memory.clone()
        memory.zero_()
        found = runner.found(samples)
        assert (found.code, found.details["path"]) == (Code.LATE_OUTPUT.value, path)
        memory.copy_(before)


def test_gradients_are_sampled_whatever_others_a_submission_has_beside(kernel):
    gradients = {f"parameter {number}": noise(3) for number in range(500)}
    runner = Runner(kernel, noise(4), gradients)
    runner.places.insert(1, OutputLocation("gradient of parameter of its own", 0, 4, (1,)))
    runner.places.reverse()
    samples = runner.sampled()
    assert len(samples) == 501
    assert runner.found(samples) is None
    runner.tensors["gradient of parameter 499"].zero_()
    assert runner.found(samples).details["path"] == "gradient of parameter 499"


HOSTILE = {
    "behind the region": OutputLocation("output", REGION_BYTES, 4, (50, 1)),
    "across its end": OutputLocation("output", REGION_BYTES - 2, 4, (0, 0)),
    "far away": OutputLocation("output", 2**64 - 4, 4, (50, 1)),
    "strides that lead out": OutputLocation("output", 256, 4, (REGION_BYTES, 1)),
    "strides whose product is more than 64 bits": OutputLocation("output", 256, 4, (2**62, 2**62)),
    "strides whose product is nothing in 64 bits": OutputLocation("output", 256, 4, (2**63 - 2**40, 1)),
    "another element": OutputLocation("output", 256, 8, (50, 1)),
    "another number of dimensions": OutputLocation("output", 256, 4, (50, 1, 1)),
    "none": OutputLocation("something else", 256, 4, (50, 1)),
}


@pytest.mark.parametrize("place", HOSTILE.values(), ids=HOSTILE)
def test_a_place_outside_of_the_region_is_not_read(kernel, place):
    runner = Runner(kernel, noise(40, 50))
    # The judge never reads a sign: strides stand in the page as 64 bits.
    runner.places = [place]
    assert runner.found(runner.sampled()).code == Code.LATE_OUTPUT.value


def test_samples_are_shared_out_evenly_and_what_small_ones_leave_goes_to_the_others():
    counts = shares([3, 10**9, 1, 10**9])
    assert (counts[0], counts[2]) == (3, 1)
    assert sum(counts) == SAMPLES
    assert counts[1] - counts[3] in (-1, 0, 1)
    assert min(shares([10**6] * MAX_PLACES)) >= 4


def test_positions_reach_beyond_32_bits():
    sampling = Sampling({"output": torch.empty(2**33, dtype=torch.uint8, device="meta")}, "cpu")
    assert int(sampling.positions().max()) > 2**32
    assert len(sampling.positions()) == SAMPLES


def test_each_call_draws_other_positions():
    sampling = Sampling({"output": torch.empty(10**6, device="meta")}, "cpu")
    assert not torch.equal(sampling.positions(), sampling.positions())


def test_what_is_new_about_the_tensors_is_taken_over():
    one = Sampling({"output": torch.empty(4)}, "cpu")
    assert one.of({"output": torch.empty(4)}) is one
    other = one.of({"output": torch.empty(5)})
    assert len(other.positions()) == 5
    assert other.of({}).paths == []


def test_more_tensors_than_are_looked_at_are_the_problems_mistake():
    many = {f"output[{number}]": torch.empty(1, device="meta") for number in range(MAX_PLACES + 1)}
    with pytest.raises(ProblemError, match="4097 tensors"):
        Sampling(many, "cpu")
