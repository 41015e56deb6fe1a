"""The headers of a build: the emulator's own in `include/`, and light ones in the place of PyTorch's heaviest.

`torch/extension.h` pulls in all of PyTorch and takes three times as long to parse as what most submissions use of it.
A file that needs more fails to compile with these, and is compiled again with PyTorch's own.
"""

import functools
import re
from collections.abc import Collection, Iterable
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


def light_headers(functions: Collection[str] | None = None) -> dict[str, str]:
    """Give the light headers: their paths in the compiler's folder, and their texts.

    They declare those of PyTorch's free functions (`at::relu`) that `functions` names; where it is None all of them, on
    which nvcc spends more than on the rest of PyTorch.
    """
    tensor = "torch/types.h"
    texts = {
        tensor: _tensor_header(functions),
        "torch/extension.h": _including(tensor, "torch/csrc/Exceptions.h", "torch/csrc/utils/pybind.h"),
        "torch/all.h": _including(tensor),
        "torch/torch.h": _including(tensor),
        "ATen/ATen.h": _including(tensor),
    }
    return {f"{LIGHT_FOLDER}/{name}": f"#pragma once\n{text}" for name, text in texts.items()}


def functions_in(texts: Iterable[str], include: Path) -> list[str]:
    """Name the free functions of PyTorch that `texts` may call: their words that have a header below `include`."""
    return sorted(_functions(include).intersection(word for text in texts for word in re.findall(r"\w+", text)))


@functools.cache
def _functions(include: Path) -> frozenset[str]:
    return frozenset(path.stem for path in (include / "ATen/ops").glob("*.h"))


def _tensor_header(functions: Collection[str] | None) -> str:
    plain = _including("ATen/core/Tensor.h", "ATen/DeviceGuard.h", "ATen/Dispatch.h")
    operators = _including("ATen/TensorOperators.h")
    if functions is None:
        return plain + operators + _NAMES
    # Without this macro the header of the operators includes that of all functions.
    alone = f"#define AT_PER_OPERATOR_HEADERS\n{operators}#undef AT_PER_OPERATOR_HEADERS\n"
    return plain + alone + _including(*(f"ATen/ops/{name}.h" for name in functions)) + _NAMES


def _including(*names: str) -> str:
    return "".join(f"#include <{name}>\n" for name in names)
