"""What the text of a submission shows before anything is compiled.

Three questions, all answered by names alone: which kernels have threads that wait for each other, which constructs the
emulator lacks, and whether the full size of a problem is written into the code.
"""

import ast
import io
import itertools
import math
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from evaluator.emulator.lexer import Code, Function, Kind, Macro, Token, parse_define, tokens
from evaluator.records import Constant

_DEVICE = frozenset(("__global__", "__device__"))

_INCLUDE = re.compile(r'#\s*include\s*(?:<(?P<name>[^>]+)>|"(?P<own>[^"]+)")')
_CUDA_HEADER = re.compile(
    r"cu[a-z]*\.h|cuda[\w/.]*|nv/.*|mma\.h|cooperative_groups.*|cub/.*|thrust/.*|cute/.*|cutlass/.*|curand.*"
    r"|cublas.*|cudnn.*|cusparse.*|cufft.*|cusolver.*|nvrtc.*|nccl.*|nvToolsExt.*|nvtx3/.*|sm_\d+_.*|device_.*"
    r"|texture_.*|surface_.*|vector_(?:types|functions).*|math_constants\.h|crt/.*"
    r"|(?:ATen|c10|THC|ATen/native|torch/csrc)/cuda/.*|THC/.*|ATen/cudnn/.*"
)
_LIBRARY_HEADER = re.compile(rf"{_CUDA_HEADER.pattern}|(?:torch|ATen|c10|pybind11)/.*|Python\.h|\w+")

# Whether threads wait for each other

_WAITS = re.compile(
    r"__syncthreads\w*|__syncwarp|__barrier_sync\w*|__\w+_sync|__shfl\w*|__any|__all|__ballot|__activemask"
    r"|sync|barrier_\w+|shfl\w*|ballot|match_any|match_all"
    r"|this_thread_block|this_grid|tiled_partition|labeled_partition|binary_partition|coalesced_threads"
    r"|thread_block\w*|coalesced_group|cub|(?:Block|Warp)(?:Reduce|Scan|Exchange|Load|Store|RadixSort|Merge\w*)"
)


class CallGraph:
    """Who mentions whom, by name, over all sources of an extension: functions, and macros with their bodies.

    A name stands for everything that bears it. Where a name cannot tell (a pointer or functor that is called, a
    barrier outside of all device functions), the answer is that threads wait: that costs time and never a result.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        """Read the functions and macros of all `texts`."""
        self._mentions: dict[str, set[str]] = {}
        self._kernels: set[str] = set()
        self._opaque: set[str] = set()
        self._everywhere = False
        sources = [tokens(text) for text in texts]
        macros = [macro for source in sources for macro in _macros(source)]
        for macro in macros:
            self._mentions.setdefault(macro.name, set()).update(_body_words(macro))
        device = _DEVICE | {macro.name for macro in macros if _DEVICE & _body_words(macro)}
        for source in sources:
            self._everywhere = self._everywhere or _includes_unseen(source)
            self._read(Code(source), device)

    def waits(self, kernel: str) -> bool:
        """Say whether threads of `kernel` may wait for each other; True where that cannot be known."""
        if self._everywhere or kernel not in self._kernels:
            return True
        seen, todo = {kernel}, [kernel, "operator"]
        while todo:
            name = todo.pop()
            if name in self._opaque or _WAITS.fullmatch(name):
                return True
            new = self._mentions.get(name, set()) - seen
            seen |= new
            todo += new
        return False

    def _read(self, code: Code, device: frozenset[str]) -> None:
        inside = [False] * len(code)
        for function in code.outermost():
            words = set(code.words(function.parameters[0], function.body[1]))
            self._mentions.setdefault(function.name, set()).update(words)
            if "__global__" in function.qualifiers:
                self._kernels.add(function.name)
            if _calls_parameter(code, function):
                self._opaque.add(function.name)
            if function.qualifiers & device:
                inside[function.parameters[0] : function.body[1]] = [True] * (function.body[1] - function.parameters[0])
        self._everywhere = self._everywhere or any(
            token.kind is Kind.WORD and not inside[index] and _WAITS.fullmatch(token.text)
            for index, token in enumerate(code.tokens)
        )


def _includes_unseen(source: Sequence[Token]) -> bool:
    """Say whether a file of the submission's own is included: it may define anything."""
    names = (match["own"] for token in source if (match := _INCLUDE.match(token.text)) is not None)
    return any(name and not _LIBRARY_HEADER.fullmatch(name) for name in names)


def _calls_parameter(code: Code, function: Function) -> bool:
    """Say whether the function calls something that it is given: nothing tells what that does."""
    names = set()
    for start, end in code.split(function.parameters[0] + 1, function.parameters[1]):
        names.update(list(code.words(start, end))[-1:])
        pointers = (index + 1 for index in range(start, end) if code.text(index - 1) + code.text(index) == "(*")
        names.update(map(code.text, pointers))
    return any(
        code.text(index) in names and code.text(index + 1) == "(" and code.text(index - 1) not in (".", "->", "::")
        for index in range(*function.body)
    )


def _macros(source: Sequence[Token]) -> Iterator[Macro]:
    for token in source:
        if token.kind is Kind.DIRECTIVE and (macro := parse_define(token.text)) is not None:
            yield macro


def _body_words(macro: Macro) -> set[str]:
    return {token.text for token in tokens(macro.body, is_body=True) if token.kind is Kind.WORD}


# What the emulator lacks


class Unsupported(NamedTuple):
    """A construct that the emulator cannot run, and the line of the text where it stands."""

    construct: str
    line: int


_NAMES = [
    (re.compile(pattern), construct)
    for pattern, construct in (
        (r"nvcuda|wmma|mma_sync|load_matrix_sync|store_matrix_sync|__mma_\w+|__wgmma\w*", "tensor cores (wmma)"),
        (r"__pipeline_\w+|cp_async\w*|memcpy_async", "asynchronous copies to shared memory"),
        (r"CUtensorMap\w*|cuTensorMap\w*|tma_\w+", "TMA"),
        (r"cutlass|cute|CUTLASS_\w+|CUTE_\w+", "CUTLASS"),
        (r"cudnn\w+|CUDNN\w*", "cuDNN"),
        (r"cusparse\w+", "cuSPARSE"),
        (r"cufft\w+", "cuFFT"),
        (r"cusolver\w+", "cuSOLVER"),
        (r"nvrtc\w+|cuModule\w+|cuLaunch\w+", "code compiled or loaded at run time"),
        (r"nccl[A-Z]\w+", "NCCL"),
        (r"tex[123]D\w*|texCubemap\w*|surf[123]D\w*|cudaTextureObject_t|cudaSurfaceObject_t", "textures and surfaces"),
        (r"this_grid|grid_group|this_multi_grid|cudaLaunchCooperativeKernel\w*", "synchronisation of the whole grid"),
        (r"this_cluster|cluster_group|__cluster\w+|cudaLaunchKernelEx\w*", "thread block clusters"),
        (r"cudaGraph\w+|cudaStreamBeginCapture", "CUDA graphs"),
        (r"cudaLaunchHostFunc|cudaStreamAddCallback", "host functions in a stream"),
    )
]
_MEMBERS = {
    ("thrust", None): "Thrust",
    ("cuda", "barrier"): "cuda::barrier",
    ("cuda", "pipeline"): "cuda::pipeline",
    ("cuda", "ptx"): "inline PTX",
}
_ASM = frozenset(("asm", "__asm__", "__asm"))
_ASSIGNMENTS = frozenset(("=", "+=", "-=", "*=", "/=", "|=", "&=", "^="))
_ORDERING = re.compile(r"__syncwarp|__syncthreads\w*|sync|__threadfence\w*")


def unsupported(text: str, has_header: Callable[[str], bool]) -> list[Unsupported]:
    r"""List what `text` uses and the emulator lacks, in the order of its lines.

    `has_header` says whether the emulator has a header of that name; CUDA's headers that it lacks are listed, other
    headers are the compiler's business. Bodies of macros count where the macro is used.

    >>> unsupported('__device__ void f() {\n  asm("trap;");\n}', lambda name: True)
    [Unsupported(construct='inline PTX (asm)', line=2)]
    """
    source = tokens(text)
    code = Code(source)
    functions = code.outermost()
    found = [*_lacking_headers(source, has_header), *_constructs(code, 0), *_launches(code, functions, 0)]
    found += [item for function in functions if (item := _warp_synchronous(code, function)) is not None]
    used = set(code.words(0, len(code))).union(*(_body_words(macro) for macro in _macros(source)))
    for token in source:
        if token.kind is Kind.DIRECTIVE and (macro := parse_define(token.text)) is not None and macro.name in used:
            body, line_offset = Code(tokens(macro.body, is_body=True)), token.line - 1 + macro.header.count("\n")
            found += [*_constructs(body, line_offset), *_launches(body, [], line_offset)]
    return sorted(set(found), key=lambda item: (item.line, item.construct))


def _lacking_headers(source: Sequence[Token], has_header: Callable[[str], bool]) -> Iterator[Unsupported]:
    for token in source:
        match = _INCLUDE.match(token.text) if token.kind is Kind.DIRECTIVE else None
        name = (match["name"] or match["own"]) if match is not None else ""
        if _CUDA_HEADER.fullmatch(name) and not has_header(name):
            yield Unsupported(f"the header {name}", token.line)


def _constructs(code: Code, line_offset: int) -> Iterator[Unsupported]:
    for index, token in enumerate(code.tokens):
        if token.kind is Kind.WORD and (construct := _construct(code, index)) is not None:
            yield Unsupported(construct, token.line + line_offset)


def _construct(code: Code, index: int) -> str | None:
    text, after = code.text(index), code.text(index + 1)
    if text in _ASM:
        return _assembly(code, index)
    if after == "::" and code.text(index - 1) != ".":
        member = code.text(index + 2)
        if text == "cub" and member.startswith("Device"):
            return f"cub::{member}"
        construct = _MEMBERS.get((text, member)) or _MEMBERS.get((text, None))
        if construct is not None:
            return construct
    return next((construct for pattern, construct in _NAMES if pattern.fullmatch(text)), None)


def _assembly(code: Code, index: int) -> str | None:
    """An empty template is a compiler barrier, which any compiler knows."""
    while code.kind(index) is Kind.WORD:
        index += 1
    return None if code.text(index) != "(" or code.text(index + 1) == '""' else "inline PTX (asm)"


def _launches(code: Code, functions: Sequence[Function], line_offset: int) -> Iterator[Unsupported]:
    """Find launches by a kernel, and launches that cannot become a call of a template."""
    device = {i for function in functions if function.qualifiers & _DEVICE for i in range(*function.body)}
    for index, token in enumerate(code.tokens):
        if token.text != "<<<":
            continue
        end = _launch_end(code, index)
        if index in device:
            yield Unsupported("a launch inside of a kernel", token.line + line_offset)
        elif end is None or not _is_operand_end(code, index - 1):
            yield Unsupported("a launch put together by macros", token.line + line_offset)
        elif any(code.text(start) == "{" for start, _ in code.split(end + 4, code.partner.get(end + 3, end))):
            yield Unsupported("a braced list as an argument of a kernel", token.line + line_offset)


def _launch_end(code: Code, launch: int) -> int | None:
    index = launch + 1
    while index < len(code) and code.text(index) not in (";", "<<<", ")", "}"):
        if code.adjacent(index, ">>>") and code.text(index + 3) == "(":
            return index
        index = code.partner.get(index, index) + 1
    return None


def _is_operand_end(code: Code, index: int) -> bool:
    return code.kind(index) is Kind.WORD or code.text(index) in (">", ")", "]")


def _warp_synchronous(code: Code, function: Function) -> Unsupported | None:
    """Find the reduction of old that relies on a warp's threads being in step.

    Elements of a `volatile` array are made from others of its elements, twice in a row or in a loop, and nothing
    between tells the threads of the warp to wait for each other.
    """
    for name in _volatile_names(code, function):
        steps = [index for index in range(*function.body) if _is_step(code, index, name)]
        between = (
            range(steps[0], steps[-1]) if len(steps) > 1 else _loop_around(code, steps[0], function) if steps else None
        )
        if between and not any(_ORDERING.fullmatch(code.text(index)) for index in between):
            return Unsupported("volatile memory instead of __syncwarp()", code.tokens[steps[0]].line)
    return None


def _volatile_names(code: Code, function: Function) -> set[str]:
    names = set()
    for index in range(function.parameters[0], function.body[1]):
        if code.text(index) == "volatile" and code.text(index - 1) not in _ASM:
            end = index
            while code.text(end) not in ("=", ";", ",", ")", "[", ""):
                end += 1
            if code.kind(end - 1) is Kind.WORD:
                names.add(code.text(end - 1))
    return names


def _is_step(code: Code, index: int, name: str) -> bool:
    """Say whether at `index` an element of `name` is assigned from another element of it."""
    if code.text(index) != name or code.text(index + 1) != "[" or index + 1 not in code.partner:
        return False
    close = code.partner[index + 1]
    if code.text(close + 1) not in _ASSIGNMENTS:
        return False
    own = [token.text for token in code.tokens[index + 1 : close + 1]]
    place = close + 2
    while place < len(code) and code.text(place) not in (";", "}"):
        if code.text(place) == name and code.text(place + 1) == "[":
            other = code.tokens[place + 1 : code.partner.get(place + 1, place) + 1]
            if [token.text for token in other] != own:
                return True
        place += 1
    return False


def _loop_around(code: Code, index: int, function: Function) -> range | None:
    """Give the innermost `for` or `while` inside of the function that `index` stands in."""
    for place in range(index, function.body[0], -1):
        if code.text(place) in ("for", "while") and place + 1 in code.partner:
            start = code.partner[place + 1] + 1
            end = code.partner.get(start) if code.text(start) == "{" else None
            if end is None:
                end = next((i for i in range(start, len(code)) if code.text(i) == ";"), len(code))
            if start <= index <= end:
                return range(start, end)
    return None


_UNDECLARED = re.compile(
    r"[\u2018'](?P<name>[\w:]+)[\u2019'] "
    r"(?:was not declared|has not been declared|does not name a type|is not a member of)"
    r"|[\u2018'](?P<member>\w+)[\u2019'] in namespace [\u2018'](?P<space>[\w:]+)[\u2019'] does not name"
    r"|(?P<header>[\w/.+-]+): No such file or directory"
)
_CUDA_NAME = re.compile(
    r"cuda[A-Z]\w*|CUDA\w+|cu[A-Z]\w+|CU_?[A-Z]\w+|cublas\w+|CUBLAS\w+|curand\w*|CURAND\w+|__[a-z]\w+|cub|cg"
)
_CUDA_SPACE = re.compile(r"cub(?:::.*)?|cooperative_groups(?:::.*)?|(?:at|c10)::cuda(?:::.*)?|cuda(?:::.*)?")


def lacking(message: str) -> str | None:
    """Give the name of CUDA's that a compiler's error says is not there: the emulator lacks it, nvcc may not.

    >>> lacking("'__dp4a' was not declared in this scope"), lacking("'rows' was not declared in this scope")
    ('__dp4a', None)
    """
    match = _UNDECLARED.search(message)
    if match is None:
        return None
    if match["header"]:
        return match["header"] if _CUDA_HEADER.fullmatch(match["header"]) else None
    name = match["member"] or match["name"]
    space = match["space"] or (re.findall(r"is not a member of [\u2018']([\w:]+)[\u2019']", message) or [""])[0]
    return name if _CUDA_NAME.fullmatch(name) or _CUDA_SPACE.fullmatch(space) else None


# Whether the full size is written into the code

_LEAST_NUMBER = 1000
_LEAST_ODD_NUMBER = 100
_WARP = 32
_LARGEST_BLOCK = 1024
_DRAWING_INPUTS = frozenset(("get_inputs", "get_init_inputs"))
_CODE_LINE = re.compile(r"[;{}]\s*\\?$|^\s*#", re.MULTILINE)


def hard_coded(
    source: str, full_constants: Mapping[str, Constant], small_constants: Mapping[str, Constant]
) -> list[tuple[int, int]]:
    r"""List numbers in a submission that belong to the problem's full size alone, with their lines.

    Both mappings hold the problem's constants by name. A number counts where it is a full-size constant, or the
    product of two or of all of them, with at least one that the small size changes, and none of the small size's
    own numbers. It must be unlikely to stand there for another reason: at least 1000 and not 1024 (a block has up
    to 1024 threads), or at least 100 and no multiple of 32.

    Numbers are looked for in Python code and inside of strings that hold C++, not in comments, docstrings or other
    text. What only `get_inputs` and `get_init_inputs` use is the problem's own, repeated, and does not count.

    >>> hard_coded("rows = 4096\nprint(rows // 8)", {"rows": 4096, "dim": 512}, {"rows": 64, "dim": 512})
    [(4096, 1)]
    """
    wanted = _full_numbers(full_constants, small_constants)
    try:
        tree = ast.parse(source)
        found = [*_python_numbers(tree), *_embedded_numbers(source, tree)]
    except (SyntaxError, ValueError, RecursionError, tokenize.TokenError):
        return []
    return sorted({(number, line) for number, line in found if number in wanted}, key=lambda item: (item[1], item[0]))


def _full_numbers(full: Mapping[str, Constant], small: Mapping[str, Constant]) -> set[int]:
    changed = {name for name, value in full.items() if small.get(name, value) != value}
    numbers = _products(full, changed) - _products(small, set(small))
    return {number for number in numbers if _is_telling(number)}


def _products(constants: Mapping[str, Constant], telling: set[str]) -> set[int]:
    """Give the values, the products of two and the product of all, of which one at least has a `telling` name."""
    values = [(name, number) for name, value in constants.items() for number in _integers(value)]
    groups = [*itertools.combinations(values, 1), *itertools.combinations(values, 2), tuple(values)]
    return {math.prod(n for _, n in group) for group in groups if any(name in telling for name, _ in group)}


def _integers(value: Constant) -> list[int]:
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, int) and not isinstance(value, bool) else []


def _is_telling(number: int) -> bool:
    if number >= _LEAST_NUMBER:
        return number != _LARGEST_BLOCK
    return number >= _LEAST_ODD_NUMBER and number % _WARP != 0


def _python_numbers(tree: ast.Module) -> Iterator[tuple[int, int]]:
    for node in _working(tree):
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and (number := _whole(part.value)) is not None:
                yield number, part.lineno


def _working(tree: ast.Module) -> list[ast.stmt]:
    """Give the statements of the submission's own work: no drawing of inputs, and no constant that only that needs."""
    kept = [node for node in tree.body if not _is_aside(node)]
    while True:
        used = {name.id for node in kept for name in ast.walk(node) if isinstance(name, ast.Name) and _is_read(name)}
        needed = [node for node in kept if not (targets := _constant_targets(node)) or targets & used]
        if len(needed) == len(kept):
            return kept
        kept = needed


def _is_read(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _is_aside(node: ast.stmt) -> bool:
    """Say whether a statement is none of the submission's work: drawing inputs, or a script at the end."""
    if isinstance(node, ast.FunctionDef):
        return node.name in _DRAWING_INPUTS
    return isinstance(node, ast.If) and "__main__" in ast.dump(node.test)


def _constant_targets(node: ast.stmt) -> set[str]:
    """Give the names that an assignment sets to something computed without a call; nothing for other statements."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or any(isinstance(part, ast.Call) for part in ast.walk(node)):
        return set()
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if math.isfinite(value) and value == int(value) else None


def _embedded_numbers(source: str, tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Find the numbers of C++ inside of strings. The text is read as it is written, so its lines are the file's."""
    docstrings = {
        node.value.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.JoinedStr)
    }
    parts = [tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)]
    for piece in tokenize.generate_tokens(io.StringIO(source).readline):
        if piece.type in parts and piece.start[0] not in docstrings and _CODE_LINE.search(_unquoted(piece.string)):
            for token in tokens(_unquoted(piece.string)):
                if token.kind is Kind.NUMBER and (number := _cpp_number(token.text)) is not None:
                    yield number, piece.start[0] + token.line - 1


def _unquoted(text: str) -> str:
    return re.sub(r"^\w*(?:'''|\"\"\"|'|\")|(?:'''|\"\"\"|'|\")$", "", text)


def _cpp_number(text: str) -> int | None:
    """Read a number of C++; None where it is not whole."""
    digits = text.replace("'", "").lower()
    try:
        if digits.startswith("0x"):
            return int(digits.rstrip("ulz"), 16)
        return _whole(float(digits.rstrip("ulzf")))
    except ValueError:
        return None
