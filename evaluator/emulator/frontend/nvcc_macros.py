"""Predefined macros of nvcc, for the submission's own lines of CUDA files, as in the respective nvcc pass.

`include/emu/nvcc.h` defines the macros for a whole file. Inserted directives hide the macros from PyTorch's and CUDA's
headers, which would otherwise use CUDA features missing from the emulator. `__CUDA_ARCH__` is also hidden from the
bodies of host functions, which call a copy of each function of host and device that asks for the macro. `#line`
directives preserve line numbers.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from evaluator.cuda_source.lexer import DEVICE, Code, Function, Token, includes, tokens
from evaluator.emulator.headers import LIBRARY_HEADER

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
        code = Code(source)
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


def _of_both_sides(code: Code, source: list[Token]) -> list[Function]:
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


def _is_of_both_sides(code: Code, function: Function) -> bool:
    names_both = function.qualifiers >= {"__host__", "__device__"}
    return names_both and function.body[1] < len(code) and not code.in_function(function.parameters[0])


def _asks(code: Code, source: list[Token], function: Function) -> bool:
    first, last = (code.tokens[index].place for index in function.body)
    return any(_ASKS.search(token.text) for token in source[first:last])


def _is_only_called(code: Code, name: str, definitions: int) -> bool:
    """Return whether a name has its definitions and calls in functions: no prototype, no use as a value."""
    spaces = {code.text(index + 1) for index, token in enumerate(code.tokens) if token.text == "namespace"}
    places = [index for index, token in enumerate(code.tokens) if token.text == name]
    return sum(not code.in_function(at) for at in places) == definitions and all(
        code.text(at + 1) in ("(", "<")
        and code.text(at - 1) not in (".", "->")
        and (code.text(at - 1) != "::" or code.text(at - 2) in spaces)
        for at in places
    )


def _start(code: Code, function: Function) -> Token:
    """Return the first token of a definition, behind the previous one."""
    index = function.parameters[0]
    while index > 0 and code.text(index - 1) not in (";", "{", "}"):
        index -= 1
    return code.tokens[index]


def _host_bodies(code: Code) -> Iterator[tuple[int, int]]:
    """Yield the brace positions of host function bodies, which no device pass compiles."""
    for function in code.outermost():
        first, last = function.body
        if not function.qualifiers & DEVICE and last < len(code):
            yield first, last
