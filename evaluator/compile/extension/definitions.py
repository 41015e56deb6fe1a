"""Definitions and declarations of functions in C++ or CUDA sources: regex search with bounded work, no parser."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_MOST_PLACES = 40
_MOST_BEFORE = 300
_MOST_PARAMETERS = 2000
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_SPACE = re.compile(r"\s+")
_DEFAULT = re.compile(r"\s*=\s*[^,()]+")
_NO_TYPE = frozenset({"return", "else", "new", "throw", "case", "goto", "co_return"})


class Definition(NamedTuple):
    """Function definition in a source: return type and parameters, as written, on one line."""

    returns: str
    name: str
    parameters: str

    @property
    def declaration(self) -> str:
        """Matching declaration."""
        return f"{self.returns} {self.name}({self.parameters});"

    @property
    def is_kernel(self) -> bool:
        """Whether the function is a kernel, which Python cannot call."""
        return "__global__" in self.returns


def definition_of(name: str, texts: Sequence[str]) -> Definition | None:
    r"""Find the first definition of a free function by name.

    >>> definition_of("f", ["int g(int a) { return f(a); }", "at::Tensor f(at::Tensor x,\n int n = 1)\n{"])
    Definition(returns='at::Tensor', name='f', parameters='at::Tensor x, int n')
    """
    return next(_definitions(name, texts, "{"), None)


def declaration_of(name: str, texts: Sequence[str]) -> Definition | None:
    """Find the first declaration without a body."""
    return next(_definitions(name, texts, ";"), None)


def defined_names(texts: Sequence[str]) -> list[str]:
    """List candidate functions for bindings: host functions returning a tensor, a vector or nothing."""
    head = re.compile(r"\b(?:Tensor|vector<[\w:]{1,60}>|void)\s{1,20}(?P<name>[A-Za-z_]\w{0,100})\s{0,20}\(")
    names = dict.fromkeys(match["name"] for text in texts for match in head.finditer(text))
    found_in = {name: definition_of(name, texts) for name in list(names)[:_MOST_PLACES]}
    return [name for name, definition in found_in.items() if definition is not None and not definition.is_kernel]


def _definitions(name: str, texts: Sequence[str], ends_with: str) -> Iterator[Definition]:
    word = re.compile(rf"\b{re.escape(name)}\s{{0,20}}\(")
    for text in texts:
        for number, match in enumerate(word.finditer(text)):
            if number == _MOST_PLACES:
                break
            if (definition := _at(text, match, name, ends_with)) is not None:
                yield definition


def _at(text: str, match: re.Match[str], name: str, ends_with: str) -> Definition | None:
    inside = _in_brackets(text, match.end())
    if inside is None:
        return None
    behind = text[match.end() + len(inside) + 1 :][:_MOST_BEFORE]
    behind = _COMMENT.sub(" ", behind).lstrip().removeprefix("noexcept").lstrip()
    before = _COMMENT.sub(" ", text[max(0, match.start() - _MOST_BEFORE) : match.start()])
    before = re.split(r"[;{}]|^[ \t]*#[^\n]*$", before, flags=re.MULTILINE)[-1]
    returns = _SPACE.sub(" ", before).strip().removeprefix('extern "C" ').removeprefix("inline ")
    returns = returns.removeprefix("static ")
    last = returns.split(" ")[-1]
    if "/*" in returns or "//" in returns:  # Inside a comment.
        return None
    if not behind.startswith(ends_with) or not returns or last in _NO_TYPE or not re.search(r"[\w>&*]\Z", returns):
        return None
    parameters = _DEFAULT.sub("", _SPACE.sub(" ", _COMMENT.sub(" ", inside)).strip())
    return Definition(returns, name, parameters)


def _in_brackets(text: str, start: int) -> str | None:
    """Return the text between the bracket before `start` and its closing bracket."""
    depth = 1
    for offset, character in enumerate(text[start : start + _MOST_PARAMETERS]):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[start : start + offset]
    return None
