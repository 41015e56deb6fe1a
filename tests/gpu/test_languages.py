"""Kernel languages beside inline CUDA and Triton on a real GPU. Run with -s for the times and reasons."""

import itertools
import os
from pathlib import Path

import pytest
import torch

from evaluator.findings import Code
from evaluator.languages.registry import LANGUAGES, found_installation
from evaluator.records import Status, Toolchain
from tests.grading.harness import Grader
from tests.grading.test_nvrtc import RELU as NVRTC
from tests.grading.test_nvrtc import line_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]
CUTLASS = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <cute/tensor.hpp>

__global__ void relu_kernel(const float* x, float* out, int rows, int columns) {
  using namespace cute;
  auto layout = make_layout(make_shape(rows, columns), make_stride(columns, 1));
  auto given = make_tensor(make_gmem_ptr(x), layout);
  auto result = make_tensor(make_gmem_ptr(out), layout);
  const int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (j < columns) {
    const float value = given(int(blockIdx.y), j);
    result(int(blockIdx.y), j) = value > 0.0f ? value : 0.0f;
  }
}

torch::Tensor relu(torch::Tensor x) {
  auto out = torch::empty_like(x);
  const int rows = x.size(0), columns = x.size(1);
  relu_kernel<<<dim3((columns + 255) / 256, rows), 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, columns);
  return out;
}
"""
extension = load_inline(
    name="cute_relu",
    cpp_sources="torch::Tensor relu(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["relu"],
    extra_cuda_cflags=["--expt-relaxed-constexpr"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x.contiguous())
'''
TILELANG = """
import tilelang
import tilelang.language as T
import torch
from torch import nn


@tilelang.jit
def relu_program(rows, columns, block=256):
    @T.prim_func
    def relu_tile(x: T.Tensor((rows, columns), "float32"), out: T.Tensor((rows, columns), "float32")):
        with T.Kernel(T.ceildiv(columns, block), rows, threads=block) as (bx, by):
            for j in T.Parallel(block):
                out[by, bx * block + j] = T.max(x[by, bx * block + j], 0.0)

    return relu_tile


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        relu_program(x.shape[0], x.shape[1])(x, out)
        return out
"""
CUTE_DSL = """
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack
from torch import nn


@cute.kernel
def relu_kernel(x: cute.Tensor, out: cute.Tensor, count: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    width, _, _ = cute.arch.block_dim()
    i = block * width + thread
    if i < count:
        value = x[i]
        out[i] = value if value > 0.0 else cutlass.Float32(0.0)


@cute.jit
def relu(x: cute.Tensor, out: cute.Tensor, count: cutlass.Int32):
    relu_kernel(x, out, count).launch(grid=((count + 255) // 256, 1, 1), block=(256, 1, 1))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        relu(from_dlpack(x.view(-1)), from_dlpack(out.view(-1)), x.numel())
        return out
"""
CUPY = '''
import cupy
import torch
from torch import nn

SOURCE = r"""
extern "C" __global__ void relu_kernel(const float* x, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = fmaxf(x[i], 0.0f);
}
"""
relu_kernel = cupy.RawKernel(SOURCE, "relu_kernel")


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            relu_kernel(((x.numel() + 255) // 256,), (256,), (x.data_ptr(), out.data_ptr(), cupy.int32(x.numel())))
        return out
'''
CUDA_PYTHON = '''
import numpy
import torch
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
from torch import nn

SOURCE = r"""
extern "C" __global__ void relu_kernel(const float* x, float* out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = fmaxf(x[i], 0.0f);
}
"""


class CurrentStream:
    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def forward(self, x):
        device = Device()
        device.set_current()
        if self.kernel is None:
            options = ProgramOptions(arch=f"sm_{device.arch}")
            self.kernel = Program(SOURCE, "c++", options=options).compile("cubin").get_kernel("relu_kernel")
        x = x.contiguous()
        out = torch.empty_like(x)
        shape = LaunchConfig(grid=(x.numel() + 255) // 256, block=256)
        stream = device.create_stream(CurrentStream())
        launch(stream, shape, self.kernel, x.data_ptr(), out.data_ptr(), numpy.int32(x.numel()))
        return out
'''
THUNDERKITTENS = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include "kittens.cuh"

using matrix = kittens::gl<float, 1, 1, -1, -1>;
using tile_of_matrix = kittens::rt_fl<16, 64>;

__global__ void relu_kernel(const __grid_constant__ matrix x, const __grid_constant__ matrix out) {
  tile_of_matrix tile;
  const kittens::coord<tile_of_matrix> place{0, 0, int(blockIdx.y), int(blockIdx.x)};
  kittens::warp::load(tile, x, place);
  kittens::warp::relu(tile, tile);
  kittens::warp::store(out, tile, place);
}

torch::Tensor relu(torch::Tensor x) {
  auto out = torch::empty_like(x);
  const size_t rows = x.size(0), columns = x.size(1);
  relu_kernel<<<dim3(columns / 64, rows / 16), 32>>>(
      matrix(x.data_ptr<float>(), nullptr, nullptr, rows, columns),
      matrix(out.data_ptr<float>(), nullptr, nullptr, rows, columns));
  return out;
}
"""
extension = load_inline(
    name="kittens_relu",
    cpp_sources="torch::Tensor relu(torch::Tensor x);",
    cuda_sources=SOURCE,
    functions=["relu"],
    extra_cuda_cflags=["-std=c++20", "-DKITTENS_HOPPER", "--expt-relaxed-constexpr", "--extended-lambda"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x.contiguous())
'''
SOURCES = {
    Toolchain.NVRTC: (NVRTC, "max(staged[threadIdx.x], T(lowest))", "max(staged[threadIdx.x], T(unknown))"),
    Toolchain.CUTLASS: (CUTLASS, "value > 0.0f", "value > unknown"),
    Toolchain.TILELANG: (TILELANG, "T.max(", "T.no_such_function("),
    Toolchain.CUTE_DSL: (CUTE_DSL, "value if value", "unknown if value"),
    Toolchain.CUPY: (CUPY, "fmaxf(x[i], 0.0f)", "fmaxf(x[i], unknown)"),
    Toolchain.CUDA_PYTHON: (CUDA_PYTHON, "fmaxf(x[i], 0.0f)", "fmaxf(x[i], unknown)"),
    Toolchain.THUNDERKITTENS: (THUNDERKITTENS, "relu(tile, tile)", "relu(tile, unknown)"),
}
"""A correct submission in each language, and a change that its compiler refuses."""


@pytest.fixture(scope="module")
def grader(tmp_path_factory) -> Grader:
    cache = Path(os.environ.get("WARPGRADE_CACHE") or tmp_path_factory.mktemp("cache"))
    return Grader(cache, tmp_path_factory.mktemp("temporary"))


@pytest.fixture
def grade(grader, tmp_path):
    folders = itertools.count()

    def graded(source, *options, size="small"):
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        return grader(folder, source, "--device", "cuda", "--size", size, *options, timeout_s=120.0)

    return graded


def need(toolchain):
    if toolchain is Toolchain.CUDA_PYTHON:
        pytest.importorskip("cuda.core", reason="the submission imports cuda.core: pip install cuda-core")
    language = next(each for each in LANGUAGES if each.toolchain is toolchain)
    if found_installation(language) is None:
        pytest.skip(f"{language.title} is not installed: {language.installation.command}")


@pytest.mark.parametrize("toolchain", SOURCES)
def test_a_correct_submission_is_correct(grade, toolchain):
    need(toolchain)
    card = grade(SOURCES[toolchain][0], size="full").assert_verdict(Status.CORRECT)
    assert toolchain in card.submission.toolchains
    stages = ", ".join(f"{name} {spent:.2f}" for name, spent in card.stages_s.items())
    print(f"\n{toolchain.value}: {card.timing.submission_median_ms:.4f} ms, {card.wall_s:.2f} s ({stages})")


@pytest.mark.parametrize("toolchain", SOURCES)
def test_a_kernel_that_does_not_compile_is_a_build_error(grade, toolchain):
    need(toolchain)
    source, old, new = SOURCES[toolchain]
    run = grade(source.replace(old, new))
    is_by_nvcc = toolchain in (Toolchain.CUTLASS, Toolchain.THUNDERKITTENS)
    code = Code.COMPILE_FAILED if is_by_nvcc else Code.KERNEL_REFUSED
    # Of the languages in Python, the line is that of a call or of the kernel.
    in_text = is_by_nvcc or toolchain is Toolchain.NVRTC
    card = run.assert_verdict(Status.BUILD_ERROR, code, line=line_of(source, old) if in_text else None)
    print(f"\n{toolchain.value}: line {card.reason.line}: {card.reason.message}")


def test_a_missing_header_library_is_no_verdict(grader, grade, monkeypatch, tmp_path):
    monkeypatch.setitem(grader.environment, "CUTLASS_PATH", str(tmp_path))
    card = grade(CUTLASS).assert_verdict(Status.INCONCLUSIVE, Code.LANGUAGE_MISSING)
    assert "pip install nvidia-cutlass" in card.reason.message


def test_a_wrong_nvrtc_kernel_is_wrong(grade):
    grade(NVRTC.replace("x.numel(), 0.0]", "x.numel(), 0.5]")).assert_verdict(Status.WRONG_RESULT, Code.WRONG_VALUES)


def test_an_nvrtc_kernel_is_own_work(grade):
    card = grade(NVRTC, "--require-own-kernel", "0.5", size="full").assert_verdict(Status.CORRECT)
    assert card.own_kernels.kernels == ["relu_kernel"]
    assert card.own_kernels.share_low > 0.5
    assert card.own_kernels.right_without_kernels is False


def test_an_idle_nvrtc_kernel_is_no_own_work(grade):
    source = NVRTC.replace("        return out\n", "        return torch.relu(x)\n")
    grade(source, "--require-own-kernel", "0.5", size="full").assert_verdict(Status.REJECTED, Code.TOO_LITTLE_OWN)
