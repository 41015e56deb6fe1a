"""Submissions with `torch.cuda._compile_kernel` and no GPU: emulated, and without a verdict on `cpu`."""

import pytest

from evaluator.findings import Code
from evaluator.records import Status, Toolchain

pytestmark = pytest.mark.slow

RELU = '''
"""The syntax tree has one language, unlike the text:
import tilelang
"""
import torch
from torch import nn

SOURCE = r"""
template <typename T, int PER_THREAD>
__global__ void relu_kernel(const T* x, T* out, int count, double lowest) {
  extern __shared__ float staged[];
  for (int n = 0; n < PER_THREAD; n++) {
    const int i = (blockIdx.x * PER_THREAD + n) * blockDim.x + threadIdx.x;
    staged[threadIdx.x] = i < count ? x[i] : 0;
    if (i < count) out[i] = max(staged[threadIdx.x], T(lowest));
  }
}
"""
relu_kernel = torch.cuda._compile_kernel(SOURCE, "relu_kernel<float, 2>", nvcc_options=["-DUNUSED=1"])
relu_kernel.set_shared_memory_config(65536)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        blocks = (x.numel() + 511) // 512
        relu_kernel(grid=(blocks, 1, 1), block=(256, 1, 1), args=[x, out, x.numel(), 0.0], shared_mem=65536)
        return out
'''
EMULATED = ("--device", "emulated")


def line_of(source, part):
    return next(n for n, line in enumerate(source.splitlines(), start=1) if part in line)


def test_a_kernel_is_emulated_with_pytorchs_own_launch(grader, tmp_path):
    run = grader(tmp_path, RELU, *EMULATED, "--require-own-kernel", "1", "--size", "awkward")
    card = run.assert_verdict(Status.CORRECT)
    assert card.submission.toolchains == [Toolchain.NVRTC]
    assert all(check.launches == 1 for check in card.checks)
    assert card.own_kernels.kernels == ["relu_kernel"]
    assert [unit.name for unit in card.build.units] == ["nvrtc_relu_kernel_float__2_"]
    assert Code.KERNEL_NOT_LAUNCHED not in run.findings


@pytest.mark.parametrize(
    ("old", "new", "status", "code", "part"),
    [
        ("? x[i]", "? y[i]", Status.BUILD_ERROR, Code.COMPILE_FAILED, "? y[i]"),
        ("(i < count) out[i]", "(true) out[i]", Status.RUNTIME_ERROR, Code.ILLEGAL_ACCESS, "(true) out[i]"),
    ],
    ids=["does not compile", "out of bounds"],
)
def test_a_failure_names_the_line_of_the_kernel(grader, tmp_path, old, new, status, code, part):
    source = RELU.replace(old, new)
    grader(tmp_path, source, *EMULATED, "--size", "awkward").assert_verdict(status, code, line=line_of(source, part))


def test_on_the_cpu_there_is_no_verdict(grader, tmp_path):
    card = grader(tmp_path, RELU, "--device", "cpu").assert_verdict(Status.INCONCLUSIVE, Code.NOT_ON_THIS_DEVICE)
    assert "NVRTC" in card.reason.message
