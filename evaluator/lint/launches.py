"""Remarks on a submission's C++: calls of libraries, and launches of kernels."""

import ast
import re
from collections.abc import Iterator, Sequence

from evaluator.cuda_source.lexer import DEVICE, CodeTokens, Function, Kind, macros
from evaluator.findings import Code as Finding
from evaluator.languages.registry import DECORATORS
from evaluator.lint.embedded import EmbeddedCode, calls, texts
from evaluator.lint.library import IN_CPP, is_function, of_library
from evaluator.lint.messages import Remark, shown
from evaluator.lint.names import DottedNames, word_set

_CALLED: dict[Finding, tuple[frozenset[str], str]] = {
    Finding.SECOND_STREAM: (
        frozenset(
            ("cudaStreamCreate", "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority", "getStreamFromPool")
        ),
        "makes another stream",
    ),
    Finding.THREADS: (
        word_set("""
            pthread_create fork vfork clone system popen execl execv execve execvp posix_spawn posix_spawnp
            thread jthread async
            """),
        "starts a thread or a process",
    ),
    Finding.FILES: (
        word_set("fopen freopen fdopen ofstream ifstream fstream mmap shm_open memfd_create unlink opendir"),
        "uses files",
    ),
    Finding.NETWORK: (frozenset(("getaddrinfo", "inet_addr", "inet_pton", "gethostbyname")), "uses the network"),
    Finding.INTERNALS: (
        word_set("""
            dlopen dlsym dlmopen ptrace sigaction atexit _exit _Exit quick_exit process_vm_readv process_vm_writev
            PyRun_SimpleString PyRun_String PyEval_GetFrame PyImport_ImportModule PyImport_AddModule
            """),
        "reaches into the process",
    ),
}
_OBJECTS = {
    "thread": Finding.THREADS,
    "jthread": Finding.THREADS,
    "ofstream": Finding.FILES,
    "ifstream": Finding.FILES,
    "fstream": Finding.FILES,
}
"""Classes of `std` whose construction starts threads or opens files."""


def cpp_rules(pieces: list[EmbeddedCode]) -> Iterator[Remark]:
    """Find calls in host code by name."""
    for piece in pieces:
        yield from _named_calls(piece)
        yield from _library_calls(piece)


def _named_calls(piece: EmbeddedCode) -> Iterator[Remark]:
    code = piece.code
    for index, token in calls(code):
        for remark_code, (names, does) in _CALLED.items():
            if token.text in names and (token.text not in ("thread", "jthread", "async") or _in_std(code, index)):
                yield Remark(remark_code, piece.line(token), f"{token.text} {does}")
    for index, token in enumerate(code.tokens):
        if token.text in _OBJECTS and _in_std(code, index) and code.kind(index + 1) is Kind.WORD:
            remark_code = _OBJECTS[token.text]
            yield Remark(remark_code, piece.line(token), f"std::{token.text} {_CALLED[remark_code][1]}")
        if token.text == "constructor" and "__attribute__" in [code.text(index - n) for n in range(1, 6)]:
            yield Remark(Finding.INTERNALS, piece.line(token), "a function runs when the library is loaded")


def _in_std(code: CodeTokens, index: int) -> bool:
    return code.text(index - 1) == "::" and code.text(index - 2) == "std"


def _library_calls(piece: EmbeddedCode) -> Iterator[Remark]:
    code = piece.code
    device = [function.body for function in piece.functions if function.qualifiers & DEVICE]
    for index, token in enumerate(code.tokens):
        if token.kind is not Kind.WORD or code.text(index + 1) != "(":
            continue
        before = code.text(index - 1)
        if any(start < index < end for start, end in device):
            continue
        space = code.text(index - 2) if before == "::" else ""
        computing = is_function(token.text) and (
            (space in ("at", "torch") and code.text(index - 3) != "::") or space in ("native", "functional", "linalg")
        )
        if computing or of_library(token.text):
            name = f"{space}::{token.text}" if space else token.text
            yield Remark(Finding.LIBRARY_IN_FORWARD, piece.line(token), f"C++ calls {shown(name)}")
        elif before in (".", "->") and token.text in IN_CPP:
            yield Remark(Finding.LIBRARY_IN_FORWARD, piece.line(token), f"C++ calls a tensor's {token.text}")


_MACRO_FUNCTIONS = frozenset(
    ("PYBIND11_MODULE", "TORCH_LIBRARY", "TORCH_LIBRARY_IMPL", "TORCH_LIBRARY_FRAGMENT", "STABLE_TORCH_LIBRARY")
)
"""Macros that resemble function definitions and bind functions to Python names."""
_BUILD_ARGUMENTS = ("functions", "name", "cpp_sources", "cuda_sources")
_BOUND = re.compile(r'(?:u8|[uUL])?R?"(?:\w*\()?(?:\w+::)?(\w+)')
_MAX_NAME = 200


def never_launched(nodes: Sequence[ast.AST], pieces: list[EmbeddedCode]) -> Iterator[Remark]:
    """Find kernels without a launch, and kernels launched only by functions that Python never names."""
    mentions = _Mentions(pieces)
    python_names = _python_names(nodes)
    for piece in pieces:
        for function in piece.functions:
            if "__global__" not in function.qualifiers or mentions.reached(function.name, python_names):
                continue
            token = piece.code.tokens[function.parameters[0] - 1]
            hosts = sorted(map(shown, mentions.inside(function.name)))
            kernel = shown(function.name)
            message = (
                f"only {', '.join(hosts[:3])} launches the kernel {kernel}, and Python never calls it"
                if hosts
                else f"nothing launches the kernel {kernel}"
            )
            yield Remark(Finding.KERNEL_NOT_LAUNCHED, piece.line(token), message)


def decorated_never_launched(nodes: Sequence[ast.AST], names: DottedNames) -> Iterator[Remark]:
    """Find kernels in Python that no other code names: neither a launch, nor another kernel, nor a dictionary."""
    kernels = [node for node in nodes if isinstance(node, ast.FunctionDef) and _is_kernel(node, names)]
    if not kernels:
        return
    used = _python_names(nodes)
    for kernel in kernels:
        if kernel.name not in used:
            message = f"nothing launches the kernel {shown(kernel.name)}"
            yield Remark(Finding.KERNEL_NOT_LAUNCHED, kernel.lineno, message)


def _is_kernel(function: ast.FunctionDef, names: DottedNames) -> bool:
    decorators = (node.func if isinstance(node, ast.Call) else node for node in function.decorator_list)
    return any(names.dotted(node) in DECORATORS for node in decorators)


class _Mentions:
    """Occurrences of function names in the code of all pieces."""

    def __init__(self, pieces: list[EmbeddedCode]) -> None:
        self._inside: dict[str, set[str]] = {}
        self._outside: set[str] = set()
        self._exposed: dict[str, set[str]] = {}
        for piece in pieces:
            self._read(piece)

    def _read(self, piece: EmbeddedCode) -> None:
        code = piece.code
        declarators = {function.parameters[0] - 1 for function in piece.functions}
        owner: list[Function | None] = [None] * len(code)
        for inner in sorted(piece.functions, key=lambda function: function.body[0]):
            start, end = inner.body
            owner[start:end] = [inner] * (end - start)
        prototype = _prototypes(code)
        for index, token in enumerate(code.tokens):
            if token.kind is not Kind.WORD or index in declarators or index in prototype:
                continue
            function = owner[index]
            if function is None or function.name in _MACRO_FUNCTIONS:
                self._outside.add(token.text)
            elif function.name != token.text:
                self._inside.setdefault(token.text, set()).add(function.name)
        for macro, _ in macros(piece.all_tokens):
            self._outside |= macro.words
        for python_name, words in _bindings(code):
            for word in words:
                self._exposed.setdefault(word, set()).add(python_name)

    def inside(self, name: str) -> set[str]:
        """Return the functions that mention a name."""
        return self._inside.get(name, set())

    def reached(self, name: str, names: set[str]) -> bool:
        """Return whether Python names the function or a caller of the function; True if undecidable."""
        todo, visited = {name}, set[str]()
        while todo:
            name = todo.pop()
            visited.add(name)
            bound = self._exposed.get(name, set())
            if name == "operator" or name in names or bound & names or (name in self._outside and not bound):
                return True
            todo |= self.inside(name) - visited
        return False


def _prototypes(code: CodeTokens) -> set[int]:
    """Return the indices of function names in declarations without a body, such as `__global__ void k(float*);`."""
    indices = set()
    for index, _ in calls(code):
        end = code.partner.get(index + 1)
        declared = code.kind(index - 1) is Kind.WORD or code.text(index - 1) in ("*", "&", ">")
        if end is not None and code.text(end + 1) == ";" and declared and not code.in_function(index):
            indices.add(index)
    return indices


def _bindings(code: CodeTokens) -> Iterator[tuple[str, set[str]]]:
    """Yield the bindings of `m.def` and `m.impl`: the Python name, and the words of the bound function."""
    for index, token in enumerate(code.tokens):
        if token.text not in ("def", "impl") or code.text(index - 1) != "." or code.text(index + 1) != "(":
            continue
        end = code.partner.get(index + 1)
        name = _BOUND.match(code.text(index + 2))
        if end is not None and name is not None:
            yield name[1], set(code.words(index + 3, end)) | {name[1]}


def _python_names(nodes: Sequence[ast.AST]) -> set[str]:
    """Return all names and short strings of the Python code, except the lists of names passed to builds."""
    lists = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.keyword) and node.arg in _BUILD_ARGUMENTS
        for inner in ast.walk(node.value)
    }
    names: set[str] = set()
    for node in nodes:
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                names.add(name)
            case _:
                continue
    words = {text for node, text in texts(nodes) if id(node) not in lists and len(text) < _MAX_NAME}
    # NVRTC takes the name of a kernel with template arguments.
    return names | {text for text in (text.partition("<")[0] for text in words) if text.isidentifier()}
