"""Detection of constructs that the emulator lacks: in the source before the build, and in compiler messages after."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from evaluator.cuda_source.launch_syntax import has_braced_argument, knows_parameters
from evaluator.cuda_source.lexer import DEVICE, CodeTokens, Function, Kind, Token, includes, macros, tokens
from evaluator.emulator.frontend.cuda_names import CUDA_NAMES, meant_header, meant_name, pytorch_declares
from evaluator.emulator.headers import CUDA_HEADER


class Unsupported(NamedTuple):
    """Unsupported construct, with its line."""

    construct: str
    line: int


_GRID_BARRIER = "synchronisation of the whole grid"
_LARGE_TILE = "tiles of more than a warp"
_NAMES = [
    (re.compile(pattern), construct)
    for pattern, construct in (
        (r"nvcuda|wmma|mma_sync|load_matrix_sync|store_matrix_sync|__mma_\w+|__wgmma\w*", "tensor cores (wmma)"),
        (r"__pipeline_\w+|cp_async\w*|memcpy_async", "asynchronous copies to shared memory"),
        (r"CUtensorMap\w*|cuTensorMap\w*|tma_\w+", "TMA"),
        (r"cutlass|cute|CUTLASS_\w+|CUTE_\w+", "CUTLASS"),
        (r"kittens|KITTENS_\w+", "ThunderKittens"),
        (r"cudnn\w+|CUDNN\w*", "cuDNN"),
        (r"cusparse\w+", "cuSPARSE"),
        (r"cufft\w+", "cuFFT"),
        (r"cusolver\w+", "cuSOLVER"),
        (r"nvrtc\w+|cuModule\w+|cuLaunch\w+", "code compiled or loaded at run time"),
        (r"nccl[A-Z]\w+", "NCCL"),
        (r"tex[123]D\w*|texCubemap\w*|surf[123]D\w*|cudaTextureObject_t|cudaSurfaceObject_t", "textures and surfaces"),
        (r"this_multi_grid|multi_grid_group|cudaLaunchCooperativeKernel\w*", _GRID_BARRIER),
        (r"this_cluster|cluster_group|__cluster\w+|cudaLaunchKernelEx\w*", "thread block clusters"),
        (r"cudaGraph\w+|cudaStreamBeginCapture", "CUDA graphs"),
        (r"cudaLaunchHostFunc|cudaStreamAddCallback", "host functions in a stream"),
    )
]
_MEMBERS = {
    ("thrust", None): "Thrust",
    ("cuda", "barrier"): "cuda::barrier",
    ("cuda", "pipeline"): "cuda::pipeline",
    ("cuda", "atomic"): "cuda::atomic",
    ("cuda", "atomic_ref"): "cuda::atomic_ref",
    ("cuda", "ptx"): "inline PTX",
}
_CUB = re.compile(
    r"Device\w+|Block(?:RadixSort|MergeSort|Exchange|Histogram|Shuffle|Discontinuity|AdjacentDifference|RunLength\w+"
    r"|TopK|RadixRank)\w*|Warp(?:Exchange|Load|Store|MergeSort)\w*"
)
_TILES = frozenset(("tiled_partition", "thread_block_tile", "block_tile_memory"))
_BARRIERS = frozenset(("sync", "barrier_arrive", "barrier_wait"))
_WARP = 32
_ASM = frozenset(("asm", "__asm__", "__asm"))
_ASSIGNMENTS = frozenset(("=", "+=", "-=", "*=", "/=", "|=", "&=", "^="))
_ORDERING = re.compile(r"__syncwarp|__syncthreads\w*|sync|__threadfence\w*")


def unsupported(text: str, has_header: Callable[[str], bool]) -> list[Unsupported]:
    r"""List the unsupported constructs of `text` in line order.

    `has_header` returns whether the emulator provides a header. Missing CUDA headers are reported; other headers are
    left to the compiler. Macro bodies count only if the macro is used.

    >>> unsupported('__device__ void f() {\n  asm("trap;");\n}', lambda name: True)
    [Unsupported(construct='inline PTX (asm)', line=2)]
    """
    source = tokens(text)
    code = CodeTokens(source)
    functions = code.outermost()
    defined = list(macros(source))
    names = frozenset(macro.name for macro, _ in defined)
    constructs = [*_lacking_headers(source, has_header), *_constructs(code, 0), *_launches(code, functions, 0, names)]
    constructs += _grid_barriers(code)
    constructs += [item for function in functions if (item := _warp_synchronous(code, function)) is not None]
    used = set(code.words(0, len(code))).union(*(macro.words for macro, _ in defined))
    for macro, token in defined:
        if macro.name in used:
            body, line_offset = CodeTokens(tokens(macro.body, is_body=True)), token.line - 1 + macro.header.count("\n")
            constructs += [*_constructs(body, line_offset), *_launches(body, [], line_offset, None)]
    return sorted(set(constructs), key=lambda item: (item.line, item.construct))


def _lacking_headers(source: Sequence[Token], has_header: Callable[[str], bool]) -> Iterator[Unsupported]:
    for include in includes(source):
        if _is_cuda_header(include.name) and not has_header(include.name):  # The compiler reports the misspelt.
            yield Unsupported(f"the header {include.name}", include.token.line)


def _constructs(code: CodeTokens, line_offset: int) -> Iterator[Unsupported]:
    for index, token in enumerate(code.tokens):
        if token.kind is Kind.WORD and (construct := _construct(code, index)) is not None:
            yield Unsupported(construct, token.line + line_offset)


def _construct(code: CodeTokens, index: int) -> str | None:
    text, after = code.text(index), code.text(index + 1)
    if text in _ASM:
        return _assembly(code, index)
    if after == "::" and code.text(index - 1) != ".":
        member = code.text(index + 2)
        if text == "cub" and _CUB.fullmatch(member):
            return f"cub::{member}"
        construct = _MEMBERS.get((text, member)) or _MEMBERS.get((text, None))
        if construct is not None:
            return construct
    if text in _TILES and after == "<" and (size := code.text(index + 2)).isdecimal() and int(size) > _WARP:
        return _LARGE_TILE
    return next((construct for pattern, construct in _NAMES if pattern.fullmatch(text)), None)


def _grid_barriers(code: CodeTokens) -> Iterator[Unsupported]:
    """Find barriers of the whole grid. Queries of a grid's shape are supported."""
    names = set(_grid_names(code))
    for index, token in enumerate(code.tokens):
        if token.text in _BARRIERS and code.text(index + 1) == "(":
            of_call = code.text(index - 1) == "." and code.text(index - 4) == "this_grid"
            of_name = code.text(index - 1) in (".", "->") and code.text(index - 2) in names
            arguments = set(code.words(index + 2, code.partner.get(index + 1, index + 2)))
            if of_call or of_name or (code.text(index - 1) == "::" and arguments & (names | {"this_grid"})):
                yield Unsupported(_GRID_BARRIER, token.line)


def _grid_names(code: CodeTokens) -> Iterator[str]:
    """Yield the names of variables and parameters of grid type."""
    for index, token in enumerate(code.tokens):
        if token.text == "grid_group":
            position = index + 1
            while code.text(position) in ("const", "&", "*"):
                position += 1
            yield code.text(position)
        elif token.text == "this_grid":
            start = index
            while code.text(start - 1) == "::":
                start -= 2
            if code.text(start - 1) in ("=", "(", "{"):
                yield code.text(start - 2)


def _assembly(code: CodeTokens, index: int) -> str | None:
    """Return the construct of inline assembly; None for an empty template, a portable compiler barrier."""
    while code.kind(index) is Kind.WORD:
        index += 1
    return None if code.text(index) != "(" or code.text(index + 1) == '""' else "inline PTX (asm)"


def _launches(
    code: CodeTokens, functions: Sequence[Function], line_offset: int, macros_of_text: frozenset[str] | None
) -> Iterator[Unsupported]:
    """Find launches inside kernels, and launches that cannot be rewritten as a call.

    A missing brace would put all later launches into a kernel; the compiler reports the brace. The compiler also
    reports a mistyped launch: without a macro of `macros_of_text`, or a name in capitals, no macro can complete the
    launch. None stands for the body of a macro.
    """
    balanced = all(index in code.partner for index, token in enumerate(code.tokens) if token.text in ("{", "}"))
    in_kernels = (function for function in functions if balanced and function.qualifiers & DEVICE)
    device = {index for function in in_kernels for index in range(*function.body)}
    for index, token in enumerate(code.tokens):
        if token.text != "<<<":
            continue
        end = _launch_end(code, index)
        if index in device:
            yield Unsupported("a launch inside of a kernel", token.line + line_offset)
        elif end is None or not _is_operand_end(code, index - 1):
            if macros_of_text is None or _has_macro(code, index, macros_of_text):
                yield Unsupported("a launch put together by macros", token.line + line_offset)
        elif has_braced_argument(code, end) and not knows_parameters(code, functions, index):
            yield Unsupported("a braced list as an argument of a kernel", token.line + line_offset)


def _has_macro(code: CodeTokens, launch: int, names: frozenset[str]) -> bool:
    """Return whether the statement of a launch has a macro of the text, or a name that may be one of a header."""
    start = end = launch
    while start > 0 and code.text(start - 1) not in (";", "{", "}"):
        start -= 1
    while end < len(code) and code.text(end) not in (";", "{", "}"):
        end += 1
    words = set(code.words(start, end))
    return not words.isdisjoint(names) or any(word.isupper() and not _is_declared(code, word) for word in words)


def _is_declared(code: CodeTokens, name: str) -> bool:
    """Return whether the text declares a variable or a template's parameter of the name."""
    return any(
        token.text == name
        and code.kind(index - 1) is Kind.WORD
        and code.text(index + 1) in ("=", "{", "[", ",", ">", ")")
        for index, token in enumerate(code.tokens)
        if index
    )


def _launch_end(code: CodeTokens, launch: int) -> int | None:
    index = launch + 1
    while index < len(code) and code.text(index) not in (";", "<<<", ")", "]", "}"):
        if code.adjacent(index, ">>>") and code.text(index + 3) == "(":
            return index
        index = code.after(index)
    return None


def _is_operand_end(code: CodeTokens, index: int) -> bool:
    return code.kind(index) is Kind.WORD or code.text(index) in (">", ")", "]")


def _warp_synchronous(code: CodeTokens, function: Function) -> Unsupported | None:
    """Find warp-synchronous reductions, which rely on lockstep execution of a warp.

    The pattern: elements of a `volatile` array are computed from other elements of the array, twice in a row or in a
    loop, without synchronization in between.
    """
    for name in _volatile_names(code, function):
        steps = [index for index in range(*function.body) if _is_step(code, index, name)]
        between = (
            range(steps[0], steps[-1]) if len(steps) > 1 else _loop_around(code, steps[0], function) if steps else None
        )
        if between and not any(_ORDERING.fullmatch(code.text(index)) for index in between):
            return Unsupported("volatile memory instead of __syncwarp()", code.tokens[steps[0]].line)
    return None


def _volatile_names(code: CodeTokens, function: Function) -> set[str]:
    names = set()
    for index in range(function.parameters[0], function.body[1]):
        if code.text(index) == "volatile" and code.text(index - 1) not in _ASM:
            end = index
            while code.text(end) not in ("=", ";", ",", ")", "[", ""):
                end += 1
            if code.kind(end - 1) is Kind.WORD:
                names.add(code.text(end - 1))
    return names


def _is_step(code: CodeTokens, index: int, name: str) -> bool:
    """Return whether the code at `index` assigns an element of `name` from another element of `name`."""
    if code.text(index) != name or code.text(index + 1) != "[" or index + 1 not in code.partner:
        return False
    close = code.partner[index + 1]
    if code.text(close + 1) not in _ASSIGNMENTS:
        return False
    target = [token.text for token in code.tokens[index + 1 : close + 1]]
    position = close + 2
    while position < len(code) and code.text(position) not in (";", "}"):
        if code.text(position) == name and code.text(position + 1) == "[":
            source = code.tokens[position + 1 : code.partner.get(position + 1, position) + 1]
            if [token.text for token in source] != target:
                return True
        position += 1
    return False


def _loop_around(code: CodeTokens, index: int, function: Function) -> range | None:
    """Return the innermost `for` or `while` body around `index`, within the function."""
    for position in range(index, function.body[0], -1):
        if code.text(position) in ("for", "while") and position + 1 in code.partner:
            start = code.partner[position + 1] + 1
            end = code.partner.get(start) if code.text(start) == "{" else None
            if end is None:
                end = next((i for i in range(start, len(code)) if code.text(i) == ";"), len(code))
            if start <= index <= end:
                return range(start, end)
    return None


_UNDECLARED = re.compile(
    r"[\u2018'](?P<name>[\w:]+)[\u2019'] "
    r"(?:was not declared|has not been declared|does not name a type|is not a member of)"
    r"|[\u2018'](?P<member>\w+)[\u2019'] in namespace [\u2018'][\w:]+[\u2019'] does not name"
    r"|[\u2018'](?:using \w+ = )?(?:const )?(?:class |struct )?(?P<owner>[\w:]+)[^\u2018\u2019']*[\u2019']"
    r"(?: \{aka [^}]*\})? has no member named [\u2018'](?P<of>\w+)[\u2019']"
    r"|(?P<header>[\w/.+-]+): No such file or directory"
)
_OWN_LIMIT = re.compile(r"static assertion failed: the emulator (?:has|lacks) (?P<what>.*)")
_LIBRARY_NAME = re.compile(r"cublas\w+|CUBLAS\w+|curand\w*|CURAND\w+|cuda|cub|cg")
"""Names that the list of CUDA's names leaves out."""
_PYTORCH_SPACE = re.compile(r"(?:at|c10)::cuda(?:::.*)?")
_LIBRARY_SPACE = re.compile(r"cub(?:::.*)?|(?:cooperative_groups|cg)(?:::.*)?|cuda(?:::.*)?")
_SPACE = re.compile(r"(?:is not a member of|in namespace) [\u2018'](?P<space>[\w:]+)[\u2019']")
_TOOLKIT_HEADER = re.compile(r"cuda\w*\.h(?:pp)?")


def suggestion(message: str) -> str | None:
    """Return the name or header that a compiler error misspells."""
    match = _UNDECLARED.search(message)
    if match is None:
        return None
    if match["header"]:
        return meant_header(match["header"])
    is_unknown = match["name"] and lacking(message) is None
    return meant_name(match["name"], of_pytorch=_is_of_pytorch(message)) if is_unknown else None


def lacking(message: str) -> str | None:
    """Return the CUDA name reported missing by a compiler error, which nvcc knows; None for other names.

    >>> lacking("'__dp4a' was not declared in this scope"), lacking("'__shfl_down' was not declared in this scope")
    ('__dp4a', None)
    """
    if (limit := _OWN_LIMIT.match(message)) is not None:
        return f"more than {limit['what']}"
    match = _UNDECLARED.search(message)
    if match is None:
        return None
    if match["header"]:
        return match["header"] if _is_cuda_header(match["header"]) else None
    if match["owner"]:
        member = f"{match['owner']}::{match['of']}"
        return member if member in CUDA_NAMES or _LIBRARY_SPACE.fullmatch(match["owner"]) else None
    name = match["member"] or match["name"]
    if _is_of_pytorch(message):
        return name if pytorch_declares(name) else None
    return (
        name
        if name in CUDA_NAMES or _LIBRARY_NAME.fullmatch(name) or _LIBRARY_SPACE.fullmatch(_space(message))
        else None
    )


def _is_of_pytorch(message: str) -> bool:
    return _PYTORCH_SPACE.fullmatch(_space(message)) is not None


def _space(message: str) -> str:
    """Return the namespace that a compiler error names; empty without a namespace."""
    match = _SPACE.search(message)
    return match["space"] if match is not None else ""


def _is_cuda_header(name: str) -> bool:
    """Return whether nvcc may find a header. The list has all headers of CUDA's own, but not of the libraries."""
    invented = _TOOLKIT_HEADER.fullmatch(name) is not None and name not in CUDA_NAMES
    return CUDA_HEADER.fullmatch(name) is not None and meant_header(name) is None and not invented
