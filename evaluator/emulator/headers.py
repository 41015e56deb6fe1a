"""The headers of a build: the emulator's own in `include/`, and light ones in the place of PyTorch's heaviest.

`torch/extension.h` pulls in all of PyTorch and takes three times as long to parse as what most submissions use of it.
A file that needs more fails to compile with these, and is compiled again with PyTorch's own.
"""

import re
from pathlib import Path

INCLUDE = Path(__file__).parent / "include"
LIGHT_FOLDER = "light"
"""Where a build's light headers lie, in the compiler's folder."""

CUDA_HEADER = re.compile(
    r"cu[a-z]*\.h|cuda[\w/.]*|nv/.*|mma\.h|cooperative_groups.*|cub/.*|thrust/.*|cute/.*|cutlass/.*|curand.*"
    r"|cublas.*|cudnn.*|cusparse.*|cufft.*|cusolver.*|nvrtc.*|nccl.*|nvToolsExt.*|nvtx3/.*|sm_\d+_.*|device_.*"
    r"|texture_.*|surface_.*|vector_(?:types|functions).*|math_constants\.h|crt/.*"
    r"|(?:ATen|c10|THC|ATen/native|torch/csrc)/cuda/.*|THC/.*|ATen/cudnn/.*"
)
"""Names of headers that come with CUDA, or with a PyTorch for CUDA."""
LIBRARY_HEADER = re.compile(rf"{CUDA_HEADER.pattern}|(?:torch|ATen|c10|pybind11)/.*|Python\.h|\w+")
"""Names of headers that are no submission's own."""

_FREE_FUNCTIONS = (
    "abs", "add", "arange", "argmax", "bmm", "cat", "clone", "div", "empty", "empty_like", "empty_strided",
    "exp", "eye", "from_blob", "full", "full_like", "linear", "log", "matmul", "max", "mean", "min", "mm",
    "mul", "mv", "ones", "ones_like", "pow", "rand_like", "randn", "relu", "scalar_tensor", "sigmoid",
    "softmax", "sqrt", "stack", "sub", "sum", "tanh", "tensor", "transpose", "where", "zeros", "zeros_like",
)  # fmt: skip

_NAMES = """\
namespace torch {
using namespace at;
using Dtype = at::ScalarType;
constexpr auto kUInt8 = at::kByte;
constexpr auto kInt8 = at::kChar;
constexpr auto kInt16 = at::kShort;
constexpr auto kInt32 = at::kInt;
constexpr auto kInt64 = at::kLong;
constexpr auto kFloat16 = at::kHalf;
constexpr auto kFloat32 = at::kFloat;
constexpr auto kFloat64 = at::kDouble;
}  // namespace torch
"""


def has_header(name: str) -> bool:
    """Say whether the emulator has a header called `name`.

    >>> has_header("no/such/header.cuh")
    False
    """
    path = INCLUDE / name
    return ".." not in Path(name).parts and path.is_file()


def light_headers() -> dict[str, str]:
    """Give the light headers: their paths in the compiler's folder, and their texts."""
    tensor = "torch/types.h"
    texts = {
        tensor: _tensor_header(),
        "torch/extension.h": _including("torch/types.h", "torch/csrc/Exceptions.h", "torch/csrc/utils/pybind.h"),
        "torch/all.h": _including(tensor),
        "torch/torch.h": _including(tensor),
        "ATen/ATen.h": _including(tensor),
    }
    return {f"{LIGHT_FOLDER}/{name}": text for name, text in texts.items()}


def _tensor_header() -> str:
    operators = [f"ATen/ops/{name}.h" for name in _FREE_FUNCTIONS]
    return (
        _including("ATen/core/Tensor.h", "ATen/DeviceGuard.h", "ATen/Dispatch.h", "ATen/TensorOperators.h", *operators)
        + _NAMES
    )


def _including(*names: str) -> str:
    return "".join(["#pragma once\n", *(f"#include <{name}>\n" for name in names)])
