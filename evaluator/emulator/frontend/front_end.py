"""Analysis and rewriting of a build's C++ for the emulator in a confined child; the judge only joins the texts.

The analysis is Python code and takes about 20 us per character, more for hostile texts. The child has limits on time
and memory. `evaluator.emulator.frontend.build_ladder` assembles the build from the result.
"""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Annotated, NamedTuple

import msgspec

from evaluator.cuda_source.device_code import device_code
from evaluator.cuda_source.kernel_names import kernels_in_text
from evaluator.cuda_source.lexer import tokens
from evaluator.cuda_source.source_files import all_files
from evaluator.cuda_source.unfinished import launched_function, second_module, unfinished
from evaluator.emulator import headers
from evaluator.emulator.frontend.nvcc_macros import as_nvcc
from evaluator.emulator.frontend.rewriter import marks_returns, rewrite_host, rewrite_unit, without_own_emu
from evaluator.emulator.frontend.unsupported_features import unsupported
from evaluator.protocol.frames import BuildRequest, Frame, SourceFile
from evaluator.protocol.frames.bounds import Name, ShortText
from evaluator.protocol.submission_files import HEADER_SUFFIXES

CUDA_SUFFIXES = frozenset((".cu", ".cuh"))
_VECTORS = re.compile(
    r"\b(?:u?(?:char|short|int|long|longlong)[248]|(?:float|double)[24]|half2|__half2|(?:__)?nv_bfloat162"
    r"|alignas|__align__|aligned(?:_vector)?|AlignedVector)\b"
)
_MOST_LACKING = 64


class Lacking(NamedTuple):
    """Unsupported construct, with its file and line."""

    construct: str
    file: str
    line: int


class FileMistake(Frame, frozen=True):
    """Mistake in a line of a file, which needs no compiler."""

    message: ShortText
    next_step: ShortText
    file: Name
    line: int


class FrontEnd(Frame, frozen=True):
    """Child: the rewritten sources, and facts about them. A `mistake` ends the build.

    `device` holds the parts of CUDA files that nvcc can compile alone, `kernels` the names of defined kernels.
    """

    lacking: Annotated[list[Lacking], msgspec.Meta(max_length=_MOST_LACKING)]
    rewritten: Annotated[list[SourceFile], msgspec.Meta(max_length=256)]
    device: Annotated[list[SourceFile], msgspec.Meta(max_length=256)]
    kernels: Annotated[list[Name], msgspec.Meta(max_length=256)]
    marks_returns: bool
    vectors: bool
    mistake: FileMistake | None = None


def front_end(request: BuildRequest) -> FrontEnd:
    """Analyse and rewrite the files of a build."""
    files = all_files(request)
    new = rewritten(files)
    device_files = [SourceFile(file.name, device_code(file.text) or "") for file in files if file.name.endswith(".cu")]
    return FrontEnd(
        lacking=lacking_constructs(request)[:_MOST_LACKING],
        rewritten=new,
        device=[file for file in device_files if file.text],
        kernels=[name[:1024] for name in kernels_in_text(files).names],
        marks_returns=marks_returns([file.text for file in new]),
        vectors=has_vectors(new),
        mistake=certain_mistake(request),
    )


def certain_mistake(request: BuildRequest) -> FileMistake | None:
    """Return the first mistake that needs no compiler. A second module has no line: `functions=` is as wrong."""
    files = all_files(request)
    for file in files:
        if (mistake := unfinished(tokens(file.text))) is not None:
            return FileMistake(mistake.message, mistake.next_step, file.name, mistake.line)
    if (launch := launched_function([tokens(file.text) for file in files])) is not None:
        number, mistake = launch
        return FileMistake(mistake.message, mistake.next_step, files[number].name, mistake.line)
    for text in [] if request.functions is None else [*request.cpp_sources, *request.cuda_sources]:
        if (mistake := second_module(tokens(text), request.name)) is not None:
            return FileMistake(mistake.message, mistake.next_step, "", 0)
    return None


def lacking_constructs(request: BuildRequest) -> list[Lacking]:
    """List the unsupported constructs in the files of a build."""
    files = all_files(request)
    names = {file.name for file in files}
    return [
        Lacking(item.construct, file.name, item.line)
        for file in files
        for item in unsupported(file.text, lambda name: name in names or headers.has_header(name))
    ]


def rewritten(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Rewrite all files, CUDA files together. With any .cu source, headers count as CUDA: they may contain kernels."""
    files = [SourceFile(file.name, without_own_emu(file.text)) for file in files]
    cuda = [file for file in files if _is_cuda(file.name, files)]
    new = [as_nvcc(text) for text in rewrite_unit([file.text for file in cuda])]
    texts = dict(zip((file.name for file in cuda), new, strict=True))
    return [SourceFile(name=file.name, text=texts.get(file.name) or rewrite_host(file.text)) for file in files]


def _is_cuda(name: str, files: Sequence[SourceFile]) -> bool:
    suffix = PurePath(name).suffix
    return suffix in CUDA_SUFFIXES or (
        suffix in HEADER_SUFFIXES and any(PurePath(file.name).suffix == ".cu" for file in files)
    )


def has_vectors(files: Sequence[SourceFile]) -> bool:
    """Return whether any rewritten CUDA file has vector types with alignment requirements."""
    return any(_VECTORS.search(file.text) for file in files if _is_cuda(file.name, files))
