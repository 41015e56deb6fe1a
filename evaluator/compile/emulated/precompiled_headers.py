"""Precompiled headers of the emulator's build steps, loaded in a fraction of the parse time.

g++ searches for `extension.h.gch` next to each `torch/extension.h` in its include path. g++ uses the file only if no
tokens other than directives precede the include, and if the command line is compatible. A submission that defines a
macro tested by the headers falls back to the text.
"""

from typing import NamedTuple

from evaluator.emulator.frontend.build_ladder import FULL_FOLDER, UNIT, StepName, build_steps
from evaluator.emulator.frontend.front_end import front_end
from evaluator.protocol.frames import BuildRequest
from evaluator.toolchain import host_compiler
from evaluator.toolchain.bound_headers import BOUND_FOLDER
from evaluator.toolchain.light_headers import LIGHT_FOLDER

_HEADERS = {
    StepName.BOUND: f"{BOUND_FOLDER}/torch/extension.h",
    StepName.LIGHT: f"{LIGHT_FOLDER}/torch/extension.h",
    StepName.FULL: f"{FULL_FOLDER}/torch/extension.h",
}
PRECOMPILED = {step: f"{header}.gch" for step, header in _HEADERS.items()}
"""Paths in the compiler's folder, by build step: about 280 MB without pybind11, 460 MB with pybind11, and 810 MB with
PyTorch's own headers.
"""

# A macro defined during precompilation must have the same definition in every use.
_OF_ONE_EXTENSION = ("-DTORCH_EXTENSION_NAME=", "-DWARPGRADE_EMU_MARKS_RETURNS")


class Precompilation(NamedTuple):
    """Source `files` by path in the compiler's folder, and the command that creates `PRECOMPILED[step]`."""

    files: dict[str, str]
    argv: list[str]


def precompilation(step: StepName) -> Precompilation | None:
    """Return the precompilation of a step's headers, with the flags of all builds.

    None without g++. The step SPLIT has the headers of FULL.
    """
    if step not in _HEADERS or is_clang():
        return None
    argv, files = general_flags(step)
    return Precompilation(files, [*argv, "-x", "c++-header", _HEADERS[step], "-o", PRECOMPILED[step]])


def is_clang() -> bool:
    """Return whether the compiler is clang."""
    return "clang" in host_compiler.cxx().version.lower()


def general_flags(step: StepName) -> tuple[list[str], dict[str, str]]:
    """Return compiler and flags common to all builds of a step, and the files needed by the flags."""
    functions: dict[str, str] | None = {} if step is StepName.BOUND else None  # None: bindings by pybind11
    request = BuildRequest(name="unused", cpp_sources=[""], functions=functions, with_cuda=True)
    (build_step,) = [candidate for candidate in build_steps(request, front_end(request)) if candidate.name is step]
    argv = [flag for flag in build_step.argv[: build_step.argv.index(UNIT)] if not flag.startswith(_OF_ONE_EXTENSION)]
    return argv, {name: text for name, text in build_step.files.items() if name != UNIT}
