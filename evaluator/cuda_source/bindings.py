"""Bindings of an extension without pybind11: a table of functions, for the support in `toolchain/binding/`.

g++ spends most of a small extension's compile time in pybind11's own functions, which each unit contains anew. The
support holds these functions, and is compiled once.
"""

import re
from collections.abc import Sequence

from evaluator.protocol.frames import BuildRequest

_GENERATED = "PYBIND11_MODULE(TORCH_EXTENSION_NAME"
"""Start of the bindings that `load_inline` generates, see `source_files`."""
_REGISTERS = re.compile(r"PYBIND11_MODULE|TORCH_LIBRARY|torch/library\.h")


def why_not_tabled(request: BuildRequest) -> str | None:
    """Return why the bindings of a request cannot be a table; None if they can."""
    if request.functions is None or not request.python_module or not request.error_handling:
        return "its bindings are its own"
    if any(_REGISTERS.search(text) for text in [*request.cpp_sources, *request.cuda_sources]):
        return "it registers functions itself"
    return None


def with_table(main: str, request: BuildRequest) -> tuple[str, str] | None:
    """Return the sources of a generated main.cpp, and the table that replaces its bindings; None without bindings."""
    lines = main.split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith(_GENERATED)]
    if not starts:
        return None
    return "\n".join(lines[: starts[0]]), "\n".join(_table(request, first_line=starts[0] + 1))


def _table(request: BuildRequest, first_line: int) -> Sequence[str]:
    """Return the function table, with each function on its line in PyTorch's own bindings."""
    functions = request.functions or {}
    rows = [f"warpgrade::bind<&{name}>({_literal(name)}, {_literal(text)})," for name, text in functions.items()]
    return [
        f'#line {first_line} "main.cpp"',
        "static const warpgrade::Function warpgrade_functions[] = {",
        *rows,
        "};",
        f'extern "C" __attribute__((visibility("default"))) warpgrade::Object* PyInit_{request.name}() {{',
        f'return warpgrade::make_module("{request.name}", warpgrade_functions, {len(rows)}); }}',
    ]


def _literal(text: str) -> str:
    """Return a C string literal, with octal escapes for special characters."""
    return '"' + "".join(c if c.isascii() and c.isprintable() and c not in '"\\?' else _octal(c) for c in text) + '"'


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode())
