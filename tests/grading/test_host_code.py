"""Host code that nvcc and PyTorch take, on the emulated device: devices, the architecture, names, launches."""

import pytest

from evaluator.findings import Code
from evaluator.findings.running import ADD_RETURN
from evaluator.records import Status

pytestmark = pytest.mark.slow

EMULATED = ("--device", "emulated", "--size", "small")
RELU = """
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r'''
#include <torch/extension.h>
struct Shape { int count; float least; };
namespace emu {
__host__ __device__ int width() {
#ifdef __CUDA_ARCH__
    return blockDim.x;
#else
    return 256;
#endif
}
__global__ void relu_kernel(const float* x, float* out, Shape shape) {
    int i = blockIdx.x * width() + threadIdx.x;
    if (i < shape.count) out[i] = x[i] <= shape.least ? shape.least : x[i];
}
}
torch::Tensor relu(const torch::Tensor& x) {
    auto out = torch::empty_like(x);
    int count = x.numel();
    emu::relu_kernel<<<(count + 255) / 256, emu::width()>>>(x.data_ptr<float>(), out.data_ptr<float>(), {count, 0.0f});
    RETURN
}
'''
extension = load_inline("ext", "torch::Tensor relu(const torch::Tensor& x);", CUDA, functions=["relu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x.contiguous())
"""


def test_host_and_device_code_in_one_namespace_is_correct(grade):
    grade(RELU.replace("RETURN", "return out;"), *EMULATED).assert_verdict(Status.CORRECT)


def test_the_warning_about_a_missing_return_stands_beside_the_crash(grade):
    card = grade(RELU.replace("RETURN", ""), *EMULATED).assert_verdict(Status.RUNTIME_ERROR, Code.RUNNER_DIED)
    assert card.submission.source.splitlines()[card.reason.line - 1] == "}"
    assert card.reason.next_step == ADD_RETURN
