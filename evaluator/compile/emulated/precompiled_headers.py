"""Precompiled form of the light headers, loaded in a fraction of the parse time.

g++ searches for `extension.h.gch` next to each `torch/extension.h` in its include path. g++ uses the file only if no
tokens other than directives precede the include, and if the command line is compatible. A submission that defines a
macro tested by the headers falls back to the text.
"""

from typing import NamedTuple

from evaluator.emulator.frontend.build_ladder import UNIT, build_steps
from evaluator.emulator.frontend.front_end import front_end
from evaluator.protocol.frames import BuildRequest
from evaluator.toolchain import host_compiler
from evaluator.toolchain.light_headers import LIGHT_FOLDER

_HEADER = f"{LIGHT_FOLDER}/torch/extension.h"
PRECOMPILED = f"{_HEADER}.gch"
"""Path in the compiler's folder. About 460 MB."""

# A macro defined during precompilation must have the same definition in every use.
_OF_ONE_EXTENSION = ("-DTORCH_EXTENSION_NAME=", "-DWARPGRADE_EMU_MARKS_RETURNS")


class Precompilation(NamedTuple):
    """Source `files` by path in the compiler's folder, and the command that creates PRECOMPILED."""

    files: dict[str, str]
    argv: list[str]


def precompilation() -> Precompilation | None:
    """Return the precompilation of the light headers, with the flags of all builds; None without g++."""
    if "clang" in host_compiler.cxx().version.lower():
        return None
    request = BuildRequest(name="unused", cpp_sources=[""], with_cuda=True)
    light = build_steps(request, front_end(request))[0]
    flags = [flag for flag in light.argv[: light.argv.index(UNIT)] if not flag.startswith(_OF_ONE_EXTENSION)]
    files = {name: text for name, text in light.files.items() if name != UNIT}
    return Precompilation(files, [*flags, "-x", "c++-header", _HEADER, "-o", PRECOMPILED])
