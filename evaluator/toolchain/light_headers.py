"""Light replacements for PyTorch's heaviest headers.

`torch/extension.h` includes all of PyTorch; parsing takes three times as long as parsing the part that most submissions
use. A file with other needs fails to compile, and is then compiled with PyTorch's own headers. A successful compile has
the same meaning: the light headers declare a function with all its overloads or not at all.
"""

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from evaluator.toolchain import host_compiler

LIGHT_FOLDER = ".light"
"""Folder of the light headers, relative to the compiler's folder. No path of a submission begins with a dot."""

_FUNCTIONS = "ATen/Functions.h"
_FUNCTION = "#include <ATen/ops/"
_OF_OPERATORS = "empty_like"
"""Function called by tensor operators."""
_VARIANT = re.compile(r"(?:_symint)?(?:_(?:outf?)?)?$")

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


def light_headers() -> dict[str, str]:
    """Return the light headers: path in the compiler's folder, and text."""
    tensor = "torch/types.h"
    texts = {
        tensor: _including("ATen/core/Tensor.h", "ATen/DeviceGuard.h", "ATen/Dispatch.h", "ATen/TensorOperators.h")
        + _NAMES,
        "torch/extension.h": _including(tensor, "torch/csrc/Exceptions.h", "torch/csrc/utils/pybind.h"),
        "torch/all.h": _including(tensor),
        "torch/torch.h": _including(tensor),
        "ATen/ATen.h": _including(tensor),
    }
    return {f"{LIGHT_FOLDER}/{name}": f"#pragma once\n{text}" for name, text in texts.items()}


def functions_for(sources: Iterable[str]) -> str:
    """Return the includes of the free PyTorch functions named in `sources`."""
    return _including(*(f"ATen/ops/{name}.h" for name in sorted(_functions_in(sources))))


def light_headers_for(sources: Iterable[str]) -> dict[str, str]:
    """Return the light headers, with only the free PyTorch functions (`at::relu`) named in `sources`.

    The tensor operators include the header of all free functions, and nvcc spends most of the parse time on the header.
    The replacement declares only the named functions, plus overloads that the original header defines itself.
    """
    headers = light_headers()
    if (remainder := _defined_beside_functions()) is not None:
        text = functions_for([*sources, remainder, _OF_OPERATORS]) + remainder
        headers[f"{LIGHT_FOLDER}/{_FUNCTIONS}"] = f"#pragma once\n{text}"
    return headers


def _including(*names: str) -> str:
    return "".join(f"#include <{name}>\n" for name in names)


def _functions_in(texts: Iterable[str]) -> frozenset[str]:
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    return _functions() & (words | {_VARIANT.sub("", word) for word in words})


@functools.cache
def _functions() -> frozenset[str]:
    """Return the names of functions with a header of their own."""
    return frozenset(path.stem for path in (_include() / "ATen/ops").glob("*.h"))


@functools.cache
def _defined_beside_functions() -> str | None:
    """Return the text after the includes in the header of all functions; None for an unknown layout."""
    try:
        lines = (_include() / _FUNCTIONS).read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError:
        return None
    listed = [number for number, line in enumerate(lines) if line.startswith(_FUNCTION)]
    if not listed:
        return None
    remainder = lines[listed[-1] + 1 :]
    # The remaining lines produce an error for forbidden includers.
    ends = [number for number, line in enumerate(remainder) if line.startswith("#")]
    return "".join(remainder[: ends[0]] if ends else remainder)


def _include() -> Path:
    return Path(host_compiler.include_paths()[0])


BOUND_FOLDER = ".bound"
"""Folder of the headers, relative to the compiler's folder."""
_SOURCES = Path(__file__).parent / "binding"
BINDING_HEADER, BINDING_SUPPORT = _SOURCES / "warpgrade_bind.h", _SOURCES / "support.cpp"
"""Declarations of the bindings, and the definitions with pybind11."""
_EXTENSION = "torch/extension.h"
_DEVICE_GUARD = "ATen/DeviceGuard.h"
_DEVICE_OF = """\
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/ScalarType.h>
namespace at {
inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;
}
inline std::optional<Device> device_of(const std::optional<Tensor>& tensor) {
  return tensor.has_value() ? device_of(*tensor) : std::nullopt;
}
std::optional<Device> device_of(ITensorListRef tensors) = delete;  // The list's definition includes c10::IValue.
}  // namespace at
"""
"""Replacement without c10::IValue, whose templates g++ instantiates in every unit: a third of a unit's build time."""
_TENSOR_LIST = "ATen/core/IListRef.h"
_TAKES_LIST = "ITensorListRef"


def unit_declarations(sources: Iterable[str]) -> str:
    """Return the includes of the free PyTorch functions named in `sources`, and of the list that `cat` takes."""
    declarations = functions_for(sources)
    names = re.findall(r"<(.*)>", declarations)
    takes_list = any(_TAKES_LIST in (_include() / name).read_text(encoding="utf-8") for name in names)
    return (_including(_TENSOR_LIST) if takes_list else "") + declarations


def unit_headers() -> dict[str, str]:
    """Return the light headers of a unit that includes `unit_declarations`: path in the compiler's folder, and text."""
    return {**light_headers_for([]), f"{LIGHT_FOLDER}/{_DEVICE_GUARD}": _DEVICE_OF}


def bound_headers() -> dict[str, str]:
    """Return the headers of a unit without pybind11: path in the compiler's folder, and text."""
    light = {name.removeprefix(f"{LIGHT_FOLDER}/"): text for name, text in unit_headers().items()}
    bound = {
        _EXTENSION: f'#pragma once\n#include <torch/types.h>\n#include "../{BINDING_HEADER.name}"\n',
        BINDING_HEADER.name: BINDING_HEADER.read_text(encoding="utf-8"),
    }
    return {f"{BOUND_FOLDER}/{name}": text for name, text in (light | bound).items()}
