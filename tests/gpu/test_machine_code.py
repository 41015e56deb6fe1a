"""Machine code on a real GPU: tensor cores are named on the card, an honest fp32 kernel is not accused."""

import os
from pathlib import Path

import pytest
import torch

from evaluator.findings import Code
from evaluator.paths import data_dir
from evaluator.records import InstructionKind, NumberFormat, Status
from evaluator.toolchain.nvcc import cuobjdump
from tests.grading.harness import Grader

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
looked_at = pytest.mark.skipif(cuobjdump() is None, reason="there is no cuobjdump beside nvcc")
ON_GPU = ("--device", "cuda", "--size", "small")
HONEST = Path("matmul", "cuda_tiled.py")

# One warp for each tile of 16 x 16. The small size is a multiple of 16 in every dimension.
WMMA = r'''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <ATen/cuda/CUDAContext.h>
#include <cuda_bf16.h>
#include <mma.h>
using namespace nvcuda;

__global__ void gemm_kernel(const float* a, const float* b, float* c, int inner, int columns) {
    const int row = blockIdx.x * 16, column = blockIdx.y * 16;
    wmma::fragment<wmma::accumulator, 16, 16, KDEPTH, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    KBODY
    wmma::store_matrix_sync(c + row * columns + column, sum, columns, wmma::mem_row_major);
}

torch::Tensor gemm(torch::Tensor a, torch::Tensor b) {
    const auto left = a.contiguous();
    const auto right = b.contiguous();
    const int rows = left.size(0), inner = left.size(1), columns = right.size(1);
    TORCH_CHECK(rows % 16 == 0 && inner % 16 == 0 && columns % 16 == 0, "sizes must be multiples of 16");
    auto out = torch::empty({rows, columns}, left.options());
    gemm_kernel<<<dim3(rows / 16, columns / 16), 32, 0, at::cuda::getCurrentCUDAStream()>>>(
        left.data_ptr<float>(), right.data_ptr<float>(), out.data_ptr<float>(), inner, columns);
    return out;
}
"""
extension = load_inline(
    name="gemm_on_tensor_cores",
    cpp_sources="torch::Tensor gemm(torch::Tensor a, torch::Tensor b);",
    cuda_sources=cuda_source,
    functions=["gemm"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.gemm(a, b)
'''
TF32 = """
    wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> right;
    for (int k = 0; k < inner; k += 8) {
        wmma::load_matrix_sync(left, a + row * inner + k, inner);
        wmma::load_matrix_sync(right, b + k * columns + column, columns);
        for (int i = 0; i < left.num_elements; ++i) left.x[i] = wmma::__float_to_tf32(left.x[i]);
        for (int i = 0; i < right.num_elements; ++i) right.x[i] = wmma::__float_to_tf32(right.x[i]);
        wmma::mma_sync(sum, left, right, sum);
    }
"""
# Operands in two parts of bf16, and three of the four products.
SPLIT_BF16 = """
    __shared__ __nv_bfloat16 high_a[256], low_a[256], high_b[256], low_b[256];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> high_left, low_left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> high_right, low_right;
    for (int k = 0; k < inner; k += 16) {
        __syncwarp();
        for (int i = threadIdx.x; i < 256; i += 32) {
            const float x = a[(row + i / 16) * inner + k + i % 16];
            const float y = b[(k + i / 16) * columns + column + i % 16];
            high_a[i] = __float2bfloat16(x);
            low_a[i] = __float2bfloat16(x - __bfloat162float(high_a[i]));
            high_b[i] = __float2bfloat16(y);
            low_b[i] = __float2bfloat16(y - __bfloat162float(high_b[i]));
        }
        __syncwarp();
        wmma::load_matrix_sync(high_left, high_a, 16);
        wmma::load_matrix_sync(low_left, low_a, 16);
        wmma::load_matrix_sync(high_right, high_b, 16);
        wmma::load_matrix_sync(low_right, low_b, 16);
        wmma::mma_sync(sum, low_left, high_right, sum);
        wmma::mma_sync(sum, high_left, low_right, sum);
        wmma::mma_sync(sum, high_left, high_right, sum);
    }
"""


def on_tensor_cores(body, depth):
    return WMMA.replace("KBODY", body).replace("KDEPTH", str(depth))


@pytest.fixture(scope="module")
def grader(tmp_path_factory) -> Grader:
    cache = Path(os.environ.get("WARPGRADE_CACHE") or tmp_path_factory.mktemp("cache"))
    return Grader(cache, tmp_path_factory.mktemp("temporary"))


@pytest.fixture
def tf32_problem(tmp_path):
    """Make a matrix product that asks for TF32."""
    folder = tmp_path / "matmul_tf32"
    folder.mkdir()
    original = data_dir("problems") / "matmul"
    (folder / "reference.py").write_text((original / "reference.py").read_text())
    text = (original / "problem.toml").read_text()
    (folder / "problem.toml").write_text(f'precision = "tf32"\n{text}')
    return str(folder)


def formats(card):
    """Give the kinds and formats of the instructions that a card names."""
    return {(each.kind, each.format) for kernel in card.machine_code.reduced for each in kernel.instructions}


def test_an_honest_kernel_is_not_accused(grader, tmp_path):
    source = (data_dir("solutions") / HONEST).read_text()
    run = grader(tmp_path, source, *ON_GPU, problem="matmul", timeout_s=30.0)
    card = run.assert_verdict(Status.CORRECT)
    assert Code.REDUCED_INSTRUCTIONS not in run.findings
    assert card.machine_code.reduced == []
    if cuobjdump() is None:
        assert card.machine_code.not_looked_at == "cuobjdump not found beside nvcc"
    else:
        assert (card.machine_code.kernels, card.machine_code.not_looked_at) == (1, None)
        assert "no tensor-core or half-precision instruction" in run.out


@looked_at
@pytest.mark.parametrize(
    ("body", "depth", "form"), [(TF32, 8, NumberFormat.TF32), (SPLIT_BF16, 16, NumberFormat.BF16)], ids=["tf32", "bf16"]
)
def test_tensor_cores_in_an_fp32_problem_are_named_whatever_the_verdict(grader, tmp_path, body, depth, form):
    run = grader(tmp_path, on_tensor_cores(body, depth), *ON_GPU, problem="matmul", timeout_s=30.0)
    card = run.card
    print(card.status, card.reason, card.machine_code)
    assert card.status in {Status.CORRECT, Status.WRONG_RESULT}
    assert (InstructionKind.TENSOR_CORE, form) in formats(card)
    assert [kernel.name for kernel in card.machine_code.reduced] == ["gemm_kernel"]
    (said,) = (each for each in card.findings if each.code == Code.REDUCED_INSTRUCTIONS.value)
    assert "asks for fp32" in said.message
    assert "in gemm_kernel" in said.message


@looked_at
def test_tf32_is_no_finding_in_a_problem_that_asks_for_it(grader, tmp_path, tf32_problem):
    source = on_tensor_cores(TF32, 8)
    run = grader(tmp_path, source, *ON_GPU, problem=tf32_problem, timeout_s=30.0)
    card = run.assert_verdict(Status.CORRECT)
    assert (InstructionKind.TENSOR_CORE, NumberFormat.TF32) in formats(card)
    assert Code.REDUCED_INSTRUCTIONS not in run.findings


LIBRARY = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return {product}
"""


def test_a_profile_of_fp32_in_the_library_names_none(grader, tmp_path):
    source = LIBRARY.format(product="a @ b")
    run = grader(tmp_path, source, *ON_GPU, "--profile", "torch", problem="matmul", timeout_s=30.0)
    card = run.assert_verdict(Status.CORRECT)
    assert card.machine_code.library_kernels == []
    assert Code.REDUCED_INSTRUCTIONS not in run.findings
