"""From a build request to what the compiler is given: three ways of building it, each slower and more faithful.

Every file keeps its name and its lines through `#line`, so that the compiler's messages are about the texts that
`evaluator.build.sources.source_files` gives. Text in, text out: nothing is compiled here.
"""

import platform
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from evaluator.build import toolchain
from evaluator.build.flags import words
from evaluator.build.light_headers import LIGHT_FOLDER, light_headers
from evaluator.build.sources import source_files
from evaluator.emulator import headers
from evaluator.emulator.features import unsupported
from evaluator.emulator.nvcc_macros import as_nvcc
from evaluator.emulator.rewriter import rewrite_host, rewrite_unit
from evaluator.emulator.runtime import compiler_has
from evaluator.protocol.frames import BuildRequest, SourceFile
from evaluator.records import Diagnostic

if TYPE_CHECKING:
    from evaluator.emulator.front import FrontEnd

CUDA_SUFFIXES = frozenset((".cu", ".cuh"))
_HEADER_SUFFIXES = frozenset((".cuh", ".h", ".hpp", ".hh", ".inl", ".inc"))
_CUDA_LIBRARIES = re.compile(r"-l(?:cu\w+|c10_cuda|torch_cuda\w*|nv\w+)")
_NVCC_DEFAULTS = [
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
]
"""What PyTorch's own builder tells nvcc; without it, comparing two c10::Half is ambiguous."""
KERNEL_FLAGS = [
    "-O1",
    "-g1",  # The lines of faults; without it only the launch's is known.
    "-fno-tree-ter",  # A load stays in its line: otherwise it is done, and faults, where its value is first used.
    "-fstack-clash-protection",  # A large local array must not jump over the guard page of a fiber's stack.
    "-w",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fvisibility=hidden",
]
"""How kernels are compiled, whatever the submission."""
ALIGNMENT_FLAGS = ["-fsanitize=alignment", "-Wl,--wrap=__ubsan_handle_type_mismatch_v1"]
"""Have each access ask whether its address is aligned: only where a text has vectors, for it costs up to half of a
kernel's speed."""
_VECTORS = re.compile(
    r"\b(?:u?(?:char|short|int|long|longlong)[248]|(?:float|double)[24]|half2|__half2|(?:__)?nv_bfloat162"
    r"|alignas|__align__|aligned(?:_vector)?|AlignedVector)\b"
)
_IMPLICIT = "#include <cuda_runtime.h>\n#include <emu/nvcc.h>\n"
"""nvcc includes the one at the start of every file, and defines what the other does."""


class StepName(StrEnum):
    """A way of building an extension."""

    LIGHT = "one unit, light headers"
    FULL = "one unit, full headers"
    SPLIT = "a unit for each file, full headers"


class Step(NamedTuple):
    """One try: the `files` of the compiler's folder by their paths, and the command that makes `library` there."""

    name: StepName
    files: dict[str, str]
    argv: list[str]
    library: str


class Lacking(NamedTuple):
    """A construct that the emulator lacks, and where it stands in a file of the build."""

    construct: str
    file: str
    line: int


def build_steps(request: BuildRequest, front: "FrontEnd") -> list[Step]:
    """Give the steps of a build, in the order in which to try them; the first that succeeds is the build.

    One unit is the quickest, but a name that two files define can clash in it; the last step has no such fault.
    """
    files = front.rewritten
    sources = [file for file in files if PurePath(file.name).suffix not in _HEADER_SUFFIXES]
    local = {file.name: file.text for file in files if file not in sources}
    single = {**local, "unit.cpp": _joined(sources)}
    separate = {f"{index}.cpp": _marked(file) for index, file in enumerate(sources)}
    flags = _flags(request, front)
    return [
        _step(StepName.LIGHT, request, {**single, **light_headers()}, ["unit.cpp"], [f"-I{LIGHT_FOLDER}", *flags]),
        _step(StepName.FULL, request, single, ["unit.cpp"], flags),
        _step(StepName.SPLIT, request, {**local, **separate}, list(separate), flags),
    ]


def lacking_constructs(request: BuildRequest) -> list[Lacking]:
    """List what the files of a build use and the emulator lacks."""
    files = source_files(request)
    own = {file.name for file in files}
    return [
        Lacking(item.construct, file.name, item.line)
        for file in files
        for item in unsupported(file.text, lambda name: name in own or headers.has_header(name))
    ]


def final_errors(earlier: Sequence[Diagnostic], later: Sequence[Diagnostic], *, last: bool) -> list[Diagnostic]:
    """Give the errors that are the submission's own, after a step failed with `later`.

    The `last` step's word is taken. Before it, an error of the `earlier` step at the same place counts too, unless it
    is about two definitions, which can be the single unit's own fault. With any that counts, no more steps are needed.
    """
    errors = [entry for entry in later if entry.severity == "error"]
    if last:
        return errors
    known = {_essence(entry) for entry in earlier if entry.severity == "error"}
    return [entry for entry in errors if _essence(entry) in known and not _CLASH.search(entry.message)]


_CLASH = re.compile(r"redefin|redeclar|conflicting|ambigu|default argument|previous|overload|linkage")


def _essence(entry: Diagnostic) -> tuple[str, int, str]:
    return entry.file, entry.line, re.sub("[\u2018\u2019'\"`]", "", entry.message)


def rewritten(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Rewrite all files, those of CUDA together. A header is CUDA where any source is: a kernel may lie in it."""
    cuda = [file for file in files if _is_cuda(file.name, files)]
    new = [as_nvcc(text) for text in rewrite_unit([file.text for file in cuda])]
    texts = dict(zip((file.name for file in cuda), new, strict=True))
    return [SourceFile(name=file.name, text=texts.get(file.name) or rewrite_host(file.text)) for file in files]


def _is_cuda(name: str, files: Sequence[SourceFile]) -> bool:
    suffix = PurePath(name).suffix
    return suffix in CUDA_SUFFIXES or (
        suffix in _HEADER_SUFFIXES and any(PurePath(file.name).suffix == ".cu" for file in files)
    )


def _joined(sources: Sequence[SourceFile]) -> str:
    """Put all sources in one unit: C++ first, so that it sees nothing of CUDA's files that it does not declare."""
    ordered = sorted(sources, key=lambda file: PurePath(file.name).suffix in CUDA_SUFFIXES)
    return "".join(_marked(file) for file in ordered)


def _marked(file: SourceFile) -> str:
    implicit = _IMPLICIT if PurePath(file.name).suffix in CUDA_SUFFIXES else ""
    return f'{implicit}#line 1 "{file.name}"\n{file.text}\n'


def _step(name: StepName, request: BuildRequest, files: dict[str, str], units: list[str], flags: list[str]) -> Step:
    library = f"{request.name}.so"
    libraries = [word for word in words(request.extra_ldflags) if not _CUDA_LIBRARIES.fullmatch(word)]
    argv = [toolchain.cxx().path, *flags, *units, "-o", library, *libraries, *toolchain.link_flags()]
    return Step(name, files, argv, library)


def _flags(request: BuildRequest, front: "FrontEnd") -> list[str]:
    """Give the compile flags. Of the submission's own, macros and folders are kept; the rest is about a GPU's speed."""
    own = words([*request.extra_cflags, *request.extra_cuda_cflags])
    thread_locals = ["-mtls-dialect=gnu2"] if platform.machine() == "x86_64" else []
    marked = ["-DWARPGRADE_EMU_MARKS_RETURNS"] if front.marks_returns else []
    return [
        *KERNEL_FLAGS,
        # What has misaligned vectors found, where there are any and the compiler, which is g++, can link it.
        *(ALIGNMENT_FLAGS if front.vectors and compiler_has("libubsan.so") else []),
        *thread_locals,
        *marked,
        *_NVCC_DEFAULTS,
        *_macros(own),
        *(f"-I{path}" for path in request.extra_include_paths if path),
        f"-isystem{headers.INCLUDE}",
        *toolchain.compile_flags(request.name),
    ]


def has_vectors(files: Sequence[SourceFile]) -> bool:
    """Say whether any of CUDA's rewritten files has vectors, whose addresses must be aligned."""
    return any(_VECTORS.search(file.text) for file in files if _is_cuda(file.name, files))


def _macros(flags: Sequence[str]) -> list[str]:
    """Keep what defines macros or names folders, in one word or two."""
    joined = re.sub(r"(?<![^\0])(-[DUI])\0", r"\1", "\0".join(flags)).split("\0")
    return [flag for flag in joined if re.match(r"-[DUI].", flag)]
