"""Build steps of the emulator: three ways to compile a request, each slower and more faithful than the last.

`#line` directives preserve file names and line numbers, so compiler messages refer to the texts of
`evaluator.cuda_source.source_files.source_files`. The module only transforms texts; compiling happens elsewhere.
"""

import platform
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import NamedTuple

from evaluator.emulator import headers
from evaluator.emulator.frontend.front_end import CUDA_SUFFIXES, FrontEnd
from evaluator.emulator.runtime import compiler_has
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.protocol.submission_files import HEADER_SUFFIXES
from evaluator.records import Diagnostic
from evaluator.toolchain import host_compiler
from evaluator.toolchain.flags import words
from evaluator.toolchain.light_headers import LIGHT_FOLDER, light_headers

_CUDA_LIBRARIES = re.compile(r"-l(?:cu\w+|c10_cuda|torch_cuda\w*|nv\w+)")
_NVCC_DEFAULTS = [
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
]
"""nvcc flags of PyTorch's builder. Without the flags, comparing two c10::Half values is ambiguous."""
KERNEL_FLAGS = [
    "-O1",
    "-g1",  # Fault lines; without -g1 only the launch line is known.
    "-fno-tree-ter",  # Keeps each load in its source line; otherwise a load executes and faults at its first use.
    "-fstack-clash-protection",  # A large local array must not skip the guard page of a fiber's stack.
    "-w",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fvisibility=hidden",
]
"""Compile flags for all kernels."""
ALIGNMENT_FLAGS = ["-fsanitize=alignment", "-Wl,--wrap=__ubsan_handle_type_mismatch_v1"]
"""Check the alignment of every access. Used only for texts with vector types, since the check can halve a kernel's
speed.
"""
_IMPLICIT = "#include <cuda_runtime.h>\n#include <emu/nvcc.h>\n"
"""nvcc includes cuda_runtime.h at the start of every file; emu/nvcc.h defines nvcc's predefined macros."""


UNIT = ".unit.cpp"
"""Unit of all sources. A submission's paths do not begin with a dot."""


class StepName(StrEnum):
    """Way of building an extension."""

    LIGHT = "one unit, light headers"
    FULL = "one unit, full headers"
    SPLIT = "a unit for each file, full headers"


class Step(NamedTuple):
    """One build attempt: `files` by path in the compiler's folder, and the command that creates `library`."""

    name: StepName
    files: dict[str, str]
    argv: list[str]
    library: str


def build_steps(request: BuildRequest, front: FrontEnd) -> list[Step]:
    """Return the build steps in order of attempts; the first successful step provides the library.

    A single unit compiles fastest, but equal names in two files can collide. The last step compiles each file
    separately.
    """
    files = front.rewritten
    sources = [file for file in files if PurePath(file.name).suffix not in HEADER_SUFFIXES]
    local = {file.name: file.text for file in files}
    single = {**local, UNIT: _joined(sources)}
    separate = {f".{index}.cpp": _marked(file) for index, file in enumerate(sources)}
    flags = _flags(request, front)
    return [
        _step(StepName.LIGHT, request, {**single, **light_headers()}, [UNIT], [f"-I{LIGHT_FOLDER}", *flags]),
        _step(StepName.FULL, request, single, [UNIT], flags),
        _step(StepName.SPLIT, request, {**local, **separate}, list(separate), flags),
    ]


def final_errors(earlier: Sequence[Diagnostic], later: Sequence[Diagnostic], *, last: bool) -> list[Diagnostic]:
    """Return the submission's own errors after a step failed with `later`; any such error ends the build.

    All errors of the `last` step count. Before the last step, an error counts if the `earlier` step has the same error
    at the same position. Duplicate definitions are excluded, because the single unit can cause them.
    """
    errors = [entry for entry in later if entry.severity == "error"]
    if last:
        return errors
    known = {_essence(entry) for entry in earlier if entry.severity == "error"}
    return [entry for entry in errors if _essence(entry) in known and not _CLASH.search(entry.message)]


_CLASH = re.compile(r"redefin|redeclar|conflicting|ambigu|default argument|previous|overload|linkage")


def _essence(entry: Diagnostic) -> tuple[str, int, str]:
    return entry.file, entry.line, re.sub("[\u2018\u2019'\"`]", "", entry.message)


def _joined(sources: Sequence[SourceFile]) -> str:
    """Concatenate all sources into one unit, C++ first: C++ files must not see undeclared names of CUDA files."""
    ordered = sorted(sources, key=lambda file: PurePath(file.name).suffix in CUDA_SUFFIXES)
    return "".join(_marked(file) for file in ordered)


def _marked(file: SourceFile) -> str:
    implicit = _IMPLICIT if PurePath(file.name).suffix in CUDA_SUFFIXES else ""
    # A quoted include begins in the folder of the including file: the unit includes files in folders. Other files are
    # copied, because g++ uses the precompiled header only in the unit.
    if "/" in file.name:
        return f'{implicit}#line 1 "{UNIT}"\n#include "{file.name}"\n'
    return f'{implicit}#line 1 "{file.name}"\n{file.text}\n'


def _step(name: StepName, request: BuildRequest, files: dict[str, str], units: list[str], flags: list[str]) -> Step:
    library = f"{request.name}.so"
    libraries = [word for word in words(request.extra_ldflags) if not _CUDA_LIBRARIES.fullmatch(word)]
    argv = [host_compiler.cxx().path, *flags, *units, "-o", library, *libraries, *host_compiler.link_flags()]
    return Step(name, files, argv, library)


def _flags(request: BuildRequest, front: FrontEnd) -> list[str]:
    """Return the compile flags, including the submission's macros and include folders.

    The submission's other flags tune GPU code and are dropped.
    """
    own = words([*request.extra_cflags, *request.extra_cuda_cflags])
    thread_locals = ["-mtls-dialect=gnu2"] if platform.machine() == "x86_64" else []
    marked = ["-DWARPGRADE_EMU_MARKS_RETURNS"] if front.marks_returns else []
    return [
        *KERNEL_FLAGS,
        # Misaligned vector accesses are detected if the text has vector types and the compiler (g++) can link libubsan.
        *(ALIGNMENT_FLAGS if front.vectors and compiler_has("libubsan.so") else []),
        *thread_locals,
        *marked,
        *_NVCC_DEFAULTS,
        *_macros(own),
        *(f"-I{path}" for path in request.extra_include_paths if path),
        f"-isystem{headers.INCLUDE}",
        *host_compiler.compile_flags(request.name),
    ]


def _macros(flags: Sequence[str]) -> list[str]:
    """Keep macro definitions and include folders, given as one or two words."""
    joined = re.sub(r"(?<![^\0])(-[DUI])\0", r"\1", "\0".join(flags)).split("\0")
    return [flag for flag in joined if re.match(r"-[DUI].", flag)]
