"""Detection of unused kernels: no launch in the text, or a launch only in functions without a caller."""

import ast
import re
from collections.abc import Iterator, Sequence

from evaluator.cuda_source.lexer import Code, Function, Kind, macros
from evaluator.findings import Code as Finding
from evaluator.languages.registry import DECORATORS
from evaluator.lint.embedded import Piece, calls, texts
from evaluator.lint.messages import Remark, shown
from evaluator.lint.names import Names

_MACRO_FUNCTIONS = frozenset(
    ("PYBIND11_MODULE", "TORCH_LIBRARY", "TORCH_LIBRARY_IMPL", "TORCH_LIBRARY_FRAGMENT", "STABLE_TORCH_LIBRARY")
)
"""Macros that resemble function definitions and bind functions to Python names."""
_BUILD_ARGUMENTS = ("functions", "name", "cpp_sources", "cuda_sources")
_BOUND = re.compile(r'(?:u8|[uUL])?R?"(?:\w*\()?(?:\w+::)?(\w+)')
_MAX_NAME = 200


def never_launched(nodes: Sequence[ast.AST], pieces: list[Piece]) -> Iterator[Remark]:
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


def decorated_never_launched(nodes: Sequence[ast.AST], names: Names) -> Iterator[Remark]:
    """Find kernels in Python that no other code names: neither a launch, nor another kernel, nor a dictionary."""
    kernels = [node for node in nodes if isinstance(node, ast.FunctionDef) and _is_kernel(node, names)]
    if not kernels:
        return
    used = _python_names(nodes)
    for kernel in kernels:
        if kernel.name not in used:
            message = f"nothing launches the kernel {shown(kernel.name)}"
            yield Remark(Finding.KERNEL_NOT_LAUNCHED, kernel.lineno, message)


def _is_kernel(function: ast.FunctionDef, names: Names) -> bool:
    decorators = (node.func if isinstance(node, ast.Call) else node for node in function.decorator_list)
    return any(names.dotted(node) in DECORATORS for node in decorators)


class _Mentions:
    """Occurrences of function names in the code of all pieces."""

    def __init__(self, pieces: list[Piece]) -> None:
        self._inside: dict[str, set[str]] = {}
        self._outside: set[str] = set()
        self._exposed: dict[str, set[str]] = {}
        for piece in pieces:
            self._read(piece)

    def _read(self, piece: Piece) -> None:
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


def _prototypes(code: Code) -> set[int]:
    """Return the indices of function names in declarations without a body, such as `__global__ void k(float*);`."""
    indices = set()
    for index, _ in calls(code):
        end = code.partner.get(index + 1)
        declared = code.kind(index - 1) is Kind.WORD or code.text(index - 1) in ("*", "&", ">")
        if end is not None and code.text(end + 1) == ";" and declared and not code.in_function(index):
            indices.add(index)
    return indices


def _bindings(code: Code) -> Iterator[tuple[str, set[str]]]:
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
