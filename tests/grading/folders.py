"""Submissions of several files for tests: paths with texts."""

from tests.plain_cpp import extension

FILES = {
    "submission.toml": 'entry = "main.py"\n\n[extension]\nname = "relu_kernels"\n',
    "main.py": (
        "import relu_kernels\nimport torch\nfrom helper import launch\n\n\n"
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return launch(relu_kernels, x)\n"
    ),
    "helper.py": (
        "import torch\n\n\ndef launch(kernels, x):\n    y = torch.empty_like(x)\n    kernels.relu(x, y)\n    return y\n"
    ),
    "include/relu.h": "#pragma once\ninline float relu_of(float x) { return x > 0.f ? x : 0.f; }\n",
    "csrc/relu.cpp": extension(
        "relu",
        "x, y",
        "    const float* from = values(x);\n    float* to = values(y);\n"
        "    for (long i = 0; i < size(x, 0) * size(x, 1); ++i) to[i] = relu_of(from[i]);\n",
        top='#include "../include/relu.h"\n',
    ),
}
BY_LOAD = {
    "submission.toml": 'entry = "main.py"\n',
    "main.py": (
        "import os\nimport torch\nfrom torch.utils.cpp_extension import load\nfrom helper import launch\n\n"
        "HERE = os.path.dirname(__file__)\n"
        'kernels = load("relu_kernels", [os.path.join(HERE, "csrc/relu.cpp")], extra_include_paths=[HERE])\n\n\n'
        "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return launch(kernels, x)\n"
    ),
    "csrc/relu.cpp": FILES["csrc/relu.cpp"].replace("../include/relu.h", "include/relu.h"),
}
HALF = """#include <torch/types.h>
#include "place.cuh"
#include "../../include/relu.cuh"

__global__ void NAME_kernel(const float* from, float* to, long half, long n, long past) {
    const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < half && PLACE(i, half) < n) {
        to[PLACE(i, half)] = relu_of(from[past + PLACE(i, half)]);
    }
}

void NAME_half(torch::Tensor from, torch::Tensor to, long past) {
    const long n = from.numel(), half = (n + 1) / 2;
    NAME_kernel<<<(half + 255) / 256, 256>>>(from.data_ptr<float>(), to.data_ptr<float>(), half, n, past);
}
"""
HALVES = {
    "submission.toml": 'entry = "main.py"\n\n[extension]\nname = "halves"\nextra_cuda_cflags = ["-O3"]\n',
    "main.py": (
        "import halves\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n"
        "    def forward(self, x):\n        return halves.relu(x, 0)\n"
    ),
    "csrc/bind.cpp": """#include <torch/extension.h>

void first_half(torch::Tensor from, torch::Tensor to, long past);
void second_half(torch::Tensor from, torch::Tensor to, long past);

torch::Tensor relu(torch::Tensor x, int64_t past) {
    auto y = torch::empty_like(x);
    first_half(x, y, 0);
    second_half(x, y, past);
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("relu", &relu); }
""",
    "csrc/first/kernel.cu": HALF.replace("NAME", "first"),
    "csrc/first/place.cuh": "#define PLACE(i, half) (i)\n",
    "csrc/second/kernel.cu": HALF.replace("NAME", "second"),
    "csrc/second/place.cuh": "#undef PLACE\n#define PLACE(i, half) ((half) + (i))\n",
    "include/relu.cuh": "#pragma once\n__device__ inline float relu_of(float x) { return x > 0.f ? x : 0.f; }\n",
}
"""A CUDA file for each half of the tensor. Both files, and both headers, have the same name."""
FAR_AWAY = {"main.py": HALVES["main.py"].replace("relu(x, 0)", "relu(x, -(1 << 44))")}
"""Reads 2^46 bytes before the input, where Linux maps nothing, with the same extension."""
FAULT_LINE = 8


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
