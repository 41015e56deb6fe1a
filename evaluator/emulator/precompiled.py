"""The light headers in the compiler's own form, which it reads in a fraction of the time that parsing takes.

g++ looks for `extension.h.gch` beside each `torch/extension.h` that it is about to read. It takes the file only where
nothing but directives came before, and where the command line fits: a submission that defines a macro which the headers
test gets the text, as if there were no such file.
"""

from typing import NamedTuple

from evaluator.build import toolchain
from evaluator.build.light_headers import LIGHT_FOLDER
from evaluator.emulator.front import front_end
from evaluator.emulator.unit import build_steps
from evaluator.protocol.frames import BuildRequest

_HEADER = f"{LIGHT_FOLDER}/torch/extension.h"
PRECOMPILED = f"{_HEADER}.gch"
"""Where it lies in the compiler's folder. About 460 MB."""

# A macro that is defined while the header is compiled must be defined alike wherever it is used.
_OF_ONE_EXTENSION = ("-DTORCH_EXTENSION_NAME=", "-DWARPGRADE_EMU_MARKS_RETURNS")


class Precompilation(NamedTuple):
    """The `files` of the compiler's folder by their paths, and the command that makes PRECOMPILED there."""

    files: dict[str, str]
    argv: list[str]


def precompilation() -> Precompilation | None:
    """Say how to precompile the light headers, with the flags of every build; None where the compiler is not g++."""
    if "clang" in toolchain.cxx().version.lower():
        return None
    request = BuildRequest(name="unused", cpp_sources=[""], with_cuda=True)
    light = build_steps(request, front_end(request))[0]
    flags = [flag for flag in light.argv[: light.argv.index("unit.cpp")] if not flag.startswith(_OF_ONE_EXTENSION)]
    files = {name: text for name, text in light.files.items() if name != "unit.cpp"}
    return Precompilation(files, [*flags, "-x", "c++-header", _HEADER, "-o", PRECOMPILED])
