"""Light headers without pybind11, for units with bindings by `toolchain/binding/` (`cuda_source/bindings.py`).

pybind11 makes up most of a small unit: g++ compiles the functions of pybind11 anew in each unit with the header. Free
PyTorch functions are left out too; a unit includes the functions named in the text (`light_headers.functions_for`).
"""

from pathlib import Path

from evaluator.toolchain.light_headers import LIGHT_FOLDER, light_headers_for

BOUND_FOLDER = ".bound"
"""Folder of the headers, relative to the compiler's folder."""
_SOURCES = Path(__file__).parent / "binding"
BINDING_HEADER, BINDING_SUPPORT = _SOURCES / "warpgrade_bind.h", _SOURCES / "support.cpp"
"""Declarations of the bindings, and the definitions with pybind11."""
_EXTENSION = "torch/extension.h"


def bound_headers() -> dict[str, str]:
    """Return the headers: path in the compiler's folder, and text."""
    light = {name.removeprefix(f"{LIGHT_FOLDER}/"): text for name, text in light_headers_for([]).items()}
    bound = {
        _EXTENSION: f'#pragma once\n#include <torch/types.h>\n#include "../{BINDING_HEADER.name}"\n',
        BINDING_HEADER.name: BINDING_HEADER.read_text(encoding="utf-8"),
    }
    return {f"{BOUND_FOLDER}/{name}": text for name, text in (light | bound).items()}
