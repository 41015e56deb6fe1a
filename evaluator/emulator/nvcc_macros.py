"""What nvcc defines, for the submission's own lines of CUDA's files, as each pass of nvcc would have it.

`include/emu/nvcc.h` defines it for a whole file. Here directives are put around what must not see it: PyTorch's and
CUDA's headers, which would then want more of CUDA than the emulator has, and, for `__CUDA_ARCH__`, the bodies of the
host's functions. A `#line` after each keeps every line's number.
"""

import re
from collections.abc import Iterator

from evaluator.emulator.headers import LIBRARY_HEADER
from evaluator.emulator.lexer import DEVICE, Code, includes, tokens

_HIDDEN = ("__CUDACC__", "__NVCC__", "__CUDA_ARCH__")
_PUSH = "".join(f'#pragma push_macro("{name}")\n#undef {name}\n' for name in _HIDDEN)
_POP = "".join(f'#pragma pop_macro("{name}")\n' for name in _HIDDEN)
_ASKS = re.compile(r"ARCH|##")
"""What a text needs in it to ask for the architecture, by the name or by one that is pasted together."""


def as_nvcc(text: str) -> str:
    r"""Put the directives into a text that has been rewritten (see `rewriter`).

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
    """Find the bodies, by their braces, of functions that no pass for a device keeps."""
    for function in code.outermost():
        first, last = function.body
        if not function.qualifiers & DEVICE and last < len(code):
            yield first, last
