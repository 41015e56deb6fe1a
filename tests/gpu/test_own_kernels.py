"""`--require-own-kernel` on a real GPU: what has a kernel of its own passes, and what has none, or hides behind one."""

import os
from pathlib import Path

import pytest
import torch

from evaluator.findings import Code
from evaluator.records import ShareBasis, Status
from tests.grading.harness import Grader
from tests.zoo.entries import ZOO
from tests.zoo.mutations import NO_WORK

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
HALF = ("--device", "cuda", "--size", "small", "--require-own-kernel", "0.5")


@pytest.fixture(scope="module")
def grader(tmp_path_factory) -> Grader:
    cache = Path(os.environ.get("WARPGRADE_CACHE") or tmp_path_factory.mktemp("cache"))
    return Grader(cache, tmp_path_factory.mktemp("temporary"))


@pytest.mark.parametrize("row", NO_WORK)
def test_what_has_no_work_of_its_own_is_rejected(grader, tmp_path, row):
    run = grader(tmp_path, (ZOO / row / "cheat.py").read_text(), *HALF, timeout_s=30.0)
    card = run.assert_verdict(Status.REJECTED, Code.TOO_LITTLE_OWN)
    # A kernel that is built and not launched can be left out; the others have none to look for.
    basis = ShareBasis.LEFT_OUT if row == "decoy-kernel-not-called" else ShareBasis.BUILT
    assert card.own_kernels.basis is basis


def test_an_empty_kernel_with_a_librarys_name_is_rejected(grader, tmp_path):
    source = (ZOO / "empty-kernel-with-librarys-name" / "cheat.py").read_text()
    run = grader(tmp_path, source, *HALF, problem="matmul", timeout_s=30.0)
    card = run.assert_verdict(Status.REJECTED, Code.TOO_LITTLE_OWN)
    assert card.own_kernels.basis is ShareBasis.LEFT_OUT


def test_its_honest_twin_needs_its_kernel(grader, tmp_path):
    source = (ZOO / "empty-kernel-with-librarys-name" / "honest.py").read_text()
    card = grader(tmp_path, source, *HALF, problem="matmul", timeout_s=30.0).assert_verdict(Status.CORRECT)
    assert card.own_kernels.right_without_kernels is False
    assert card.own_kernels.share_low > 0.9


def test_a_kernel_that_is_launched_for_show_is_rejected(grader, tmp_path):
    source = (ZOO / "decoy-launch-beside-library" / "cheat.py").read_text()
    card = grader(tmp_path, source, *HALF, timeout_s=30.0).assert_verdict(Status.REJECTED, Code.TOO_LITTLE_OWN)
    assert card.own_kernels.right_without_kernels is True


def test_a_kernel_of_its_own_passes(grader, tmp_path):
    source = (ZOO / "twins" / "relu_kernel.py").read_text()
    card = grader(tmp_path, source, *HALF, timeout_s=30.0).assert_verdict(Status.CORRECT)
    assert card.own_kernels.kernels == ["relu_kernel"]
    assert card.own_kernels.share_low > 0.9


COPIES = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
__global__ void pass_on_slowly(const float* x, float* y, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i];
}
torch::Tensor pass_on(torch::Tensor x) {
    auto out = torch::empty_like(x);
    pass_on_slowly<<<1, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""
ext = load_inline(
    "copies", cpp_sources="torch::Tensor pass_on(torch::Tensor x);", cuda_sources=CUDA, functions=["pass_on"]
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return ext.pass_on(torch.mm(ext.pass_on(a.contiguous()), ext.pass_on(b.contiguous())))
'''


def test_slow_copies_around_pytorchs_product_are_rejected(grader, tmp_path):
    run = grader(tmp_path, COPIES, *HALF, problem="matmul", timeout_s=30.0)
    card = run.assert_verdict(Status.REJECTED, Code.TOO_LITTLE_OWN)
    assert card.own_kernels.basis is ShareBasis.WORK
    assert card.own_kernels.own > card.own_kernels.library  # By time, own kernels did most.
