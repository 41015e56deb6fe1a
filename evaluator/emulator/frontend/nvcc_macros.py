"""Predefined macros of nvcc, for the submission's own lines of CUDA files, as in the respective nvcc pass.

`include/emu/nvcc.h` defines the macros for a whole file. Inserted directives hide the macros from PyTorch's and CUDA's
headers, which would otherwise use CUDA features missing from the emulator. `__CUDA_ARCH__` is also hidden from the
bodies of host functions. `#line` directives preserve line numbers.
"""

import re
from collections.abc import Iterator

from evaluator.cuda_source.lexer import DEVICE, Code, includes, tokens
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
        if _is_a_librarys(include.name, quoted=include.quoted):
            token = include.token
            line = token.line + token.text.count("\n")
            before[token.place] = f"{_PUSH}#line {token.line}\n"
            after[token.place] = f"\n{_POP}#line {line + 1}"
    if _ASKS.search(text) is not None:
        code = Code(source)
        for first, last in _host_bodies(code):
            opener, closer = code.tokens[first], code.tokens[last]
            after[opener.place] = _directives('#pragma push_macro("__CUDA_ARCH__")\n#undef __CUDA_ARCH__', opener.line)
            before[closer.place] = _directives('#pragma pop_macro("__CUDA_ARCH__")', closer.line)
    return "".join(before.get(token.place, "") + token.text + after.get(token.place, "") for token in source)


def _directives(text: str, line: int) -> str:
    return f"\n{text}\n#line {line}\n"


def _is_a_librarys(name: str, *, quoted: bool) -> bool:
    return LIBRARY_HEADER.fullmatch(name) is not None or not quoted


def _host_bodies(code: Code) -> Iterator[tuple[int, int]]:
    """Yield the brace positions of host function bodies, which no device pass compiles."""
    for function in code.outermost():
        first, last = function.body
        if not function.qualifiers & DEVICE and last < len(code):
            yield first, last
