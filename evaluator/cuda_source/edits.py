"""Token edits that preserve the line number of every remaining token, and the device code of a text.

The device code is for nvcc: kernels and their callees, without code that depends on PyTorch.
"""

import re
from collections.abc import Iterator, Sequence

from evaluator.cuda_source.lexer import CodeTokens, Kind, Token, includes, tokens


class Edits:
    """Pending insertions and replacements for a text's tokens. Indices refer to `code`."""

    def __init__(self, all_tokens: Sequence[Token], code: CodeTokens) -> None:
        """Start without edits."""
        self._tokens = all_tokens
        self._code = code
        self._replaced: dict[int, str] = {}
        self._before: dict[int, str] = {}
        self._after: dict[int, str] = {}

    def replace(self, token: Token, text: str) -> None:
        """Replace a token by `text`."""
        self._replaced[token.place] = text

    def blank(self, start: int, end: int) -> None:
        """Remove tokens of the code, keeping the whitespace between them for its newlines."""
        for token in self._code.tokens[start:end]:
            self.replace(token, "\n" * token.text.count("\n"))

    def insert_before(self, index: int, text: str) -> None:
        """Insert `text` before a token, behind earlier insertions."""
        position = self._code.tokens[index].place
        self._before[position] = self._before.get(position, "") + text

    def insert_after(self, index: int, text: str) -> None:
        """Insert `text` after a token, in front of earlier insertions."""
        position = self._code.tokens[index].place
        self._after[position] = text + self._after.get(position, "")

    def result(self) -> str:
        """Return the edited text."""
        return "".join(
            self._before.get(token.place, "")
            + self._replaced.get(token.place, token.text)
            + self._after.get(token.place, "")
            for token in self._tokens
        )


_TORCH_HEADER = re.compile(r"(?:torch|ATen|c10|pybind11|THC)/.*|Python\.h")
_TORCH_NAME = re.compile(r"torch|at|c10|pybind11|py|Tensor|(?:AT|TORCH|C10|PYBIND11|THC)_\w+|PyObject")


def device_code(text: str) -> str | None:
    r"""Blank out all declarations that mention PyTorch, preserving line numbers.

    Returns None if no kernel remains.

    >>> device_code("#include <torch/types.h>\n__global__ void k() {}\ntorch::Tensor f() { k<<<1, 1>>>(); }")
    '\n__global__ void k() {}\n     '
    """
    all_tokens = tokens(text)
    code = CodeTokens(all_tokens)
    edits = Edits(all_tokens, code)
    for include in includes(all_tokens):
        if _TORCH_HEADER.fullmatch(include.name):
            edits.replace(include.token, "")
    has_kernel = False
    for start, end in _items(code):
        words = set(code.words(start, end))
        if any(_TORCH_NAME.fullmatch(word) for word in words):
            edits.blank(start, end)
        else:
            has_kernel = has_kernel or "__global__" in words
    return edits.result() if has_kernel else None


def _items(code: CodeTokens) -> Iterator[tuple[int, int]]:
    """Yield the token ranges of declarations and definitions, including the contents of namespaces and `extern "C"`."""
    bodies = {function.body for function in code.functions()}
    closed_by = dict(bodies)
    index = 0
    while index < len(code):
        opener = _scope_opener(code, index)
        if opener is not None:
            index = opener + 1
        elif code.text(index) in ("}", ";"):
            index += 1
        else:
            end = _item_end(code, index, closed_by)
            yield index, end
            index = end


def _scope_opener(code: CodeTokens, index: int) -> int | None:
    """Return the `{` of the namespace or `extern "C"` block that begins at `index`."""
    start = index + (code.text(index) == "inline")
    if code.text(start) == "namespace":
        while code.kind(start) is Kind.WORD or code.text(start) == "::":
            start += 1
    elif code.text(start) == "extern" and code.kind(start + 1) is Kind.STRING:
        start += 2
    else:
        return None
    return start if code.text(start) == "{" else None


def _item_end(code: CodeTokens, index: int, bodies: dict[int, int]) -> int:
    """Return the index behind a declaration's `;`, or behind a function's body."""
    while index < len(code):
        if index in bodies:
            return bodies[index] + 1
        if code.text(index) == ";":
            return index + 1
        index = code.after(index)
    return len(code)
