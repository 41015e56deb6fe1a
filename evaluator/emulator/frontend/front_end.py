"""Analysis and rewriting of a build's C++ for the emulator in a confined child; the judge only joins the texts.

The analysis is Python code and takes about 20 us per character, more for hostile texts. The child has limits on time
and memory. `evaluator.emulator.frontend.build_ladder` assembles the build from the result.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Annotated, NamedTuple

import msgspec

from evaluator.cuda_source.edits import device_code
from evaluator.cuda_source.launch_syntax import launched_function, second_module, unfinished
from evaluator.cuda_source.lexer import DEVICE, CodeTokens, Function, Token, includes, tokens
from evaluator.cuda_source.source_files import all_files
from evaluator.cuda_source.symbols import kernels_in_text
from evaluator.emulator import headers
from evaluator.emulator.frontend.rewriter import marks_returns, rewrite_host, rewrite_unit, without_own_emu
from evaluator.emulator.frontend.unsupported_features import unsupported
from evaluator.emulator.headers import LIBRARY_HEADER
from evaluator.protocol.frames import BuildRequest, Frame, SourceFile
from evaluator.protocol.frames.bounds import Name, ShortText
from evaluator.protocol.submission_files import HEADER_SUFFIXES

_HIDDEN = ("__CUDACC__", "__NVCC__", "__CUDA_ARCH__")
_PUSH = "".join(f'#pragma push_macro("{name}")\n#undef {name}\n' for name in _HIDDEN)
_POP = "".join(f'#pragma pop_macro("{name}")\n' for name in _HIDDEN)
_ASKS = re.compile(r"ARCH|##")
"""Text required for any use of the architecture macro, directly or through token pasting."""


def as_nvcc(text: str) -> str:
    r"""Insert the directives into a rewritten text (see `rewriter`).

    >>> as_nvcc("int a;\n")
    'int a;\n'
    >>> as_nvcc("#include <math.h>\n").splitlines()[-3:]
    ['#pragma pop_macro("__NVCC__")', '#pragma pop_macro("__CUDA_ARCH__")', '#line 2']
    """
    source = tokens(text)
    before: dict[int, str] = {}
    after: dict[int, str] = {}
    for include in includes(source):
        if LIBRARY_HEADER.fullmatch(include.name) is not None or not include.quoted:
            token = include.token
            line = token.line + token.text.count("\n")
            before[token.place] = f"{_PUSH}#line {token.line}\n"
            after[token.place] = f"\n{_POP}#line {line + 1}"
    if _ASKS.search(text) is not None:
        code = CodeTokens(source)
        copied = _of_both_sides(code, source)
        for function in copied:
            start, closer = _start(code, function), code.tokens[function.body[1]]
            names = {candidate.name for candidate in copied if candidate.body[1] <= function.body[1]}
            copy = "".join(token.text for token in source[start.place : closer.place + 1])
            as_host = f"{_hidden(names, start.line)}{copy}{_shown(names, closer.line)}"
            after[closer.place] = as_host
        for first, last in _host_bodies(code):
            opener, closer = code.tokens[first], code.tokens[last]
            names = {candidate.name for candidate in copied if candidate.body[1] < first} & set(code.words(first, last))
            after[opener.place] = _hidden(names, opener.line)
            before[closer.place] = _shown(names, closer.line)
    return "".join(before.get(token.place, "") + token.text + after.get(token.place, "") for token in source)


def _hidden(names: Iterable[str], line: int) -> str:
    """Return directives that hide the architecture, and name the copies of functions."""
    renamed = "".join(f'#pragma push_macro("{name}")\n#define {name} emu_host_{name}\n' for name in sorted(names))
    return f'\n#pragma push_macro("__CUDA_ARCH__")\n#undef __CUDA_ARCH__\n{renamed}#line {line}\n'


def _shown(names: Iterable[str], line: int) -> str:
    """Return directives that end `_hidden`."""
    renamed = "".join(f'#pragma pop_macro("{name}")\n' for name in sorted(names))
    return f'\n{renamed}#pragma pop_macro("__CUDA_ARCH__")\n#line {line}\n'


def _of_both_sides(code: CodeTokens, source: list[Token]) -> list[Function]:
    """Return the free functions of host and device that ask for the architecture, or call such a function.

    A name with other functions or other uses is left out: the copies would not replace all of those.
    """
    functions = code.outermost()
    shared = [function for function in functions if _is_of_both_sides(code, function)]
    alone = {function.name for function in shared} - {function.name for function in functions if function not in shared}
    asking = {function.name for function in shared if _asks(code, source, function)}
    while more := {function.name for function in shared if asking & set(code.words(*function.body))} - asking:
        asking |= more
    definitions = Counter(function.name for function in shared)
    called = {name for name in asking & alone if _is_only_called(code, name, definitions[name])}
    return [function for function in shared if function.name in called]


def _is_of_both_sides(code: CodeTokens, function: Function) -> bool:
    names_both = function.qualifiers >= {"__host__", "__device__"}
    return names_both and function.body[1] < len(code) and not code.in_function(function.parameters[0])


def _asks(code: CodeTokens, source: list[Token], function: Function) -> bool:
    first, last = (code.tokens[index].place for index in function.body)
    return any(_ASKS.search(token.text) for token in source[first:last])


def _is_only_called(code: CodeTokens, name: str, definitions: int) -> bool:
    """Return whether a name has its definitions and calls in functions: no prototype, no use as a value."""
    spaces = {code.text(index + 1) for index, token in enumerate(code.tokens) if token.text == "namespace"}
    places = [index for index, token in enumerate(code.tokens) if token.text == name]
    return sum(not code.in_function(at) for at in places) == definitions and all(
        code.text(at + 1) in ("(", "<")
        and code.text(at - 1) not in (".", "->")
        and (code.text(at - 1) != "::" or code.text(at - 2) in spaces)
        for at in places
    )


def _start(code: CodeTokens, function: Function) -> Token:
    """Return the first token of a definition, behind the previous one."""
    index = function.parameters[0]
    while index > 0 and code.text(index - 1) not in (";", "{", "}"):
        index -= 1
    return code.tokens[index]


def _host_bodies(code: CodeTokens) -> Iterator[tuple[int, int]]:
    """Yield the brace positions of host function bodies, which no device pass compiles."""
    for function in code.outermost():
        first, last = function.body
        if not function.qualifiers & DEVICE and last < len(code):
            yield first, last


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
