"""Python source, and the CUDA text in its string literals, as escaped HTML with classes for colours."""

from collections.abc import Iterator

from markupsafe import Markup, escape
from pygments.lexers import CudaLexer, PythonLexer
from pygments.token import Comment, Keyword, Name, Number, String, _TokenType

_CLASSES = (
    (Comment, "c"),
    (Keyword, "k"),
    (String, "s"),
    (Number, "m"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "f"),
)
_NATIVE = ("__global__", "#include", "__device__")


def coloured(source: str) -> Markup:
    """Return `source` as HTML. The text between the tags is `source` itself.

    >>> str(coloured("def f(): return '<'")).startswith('<span class="k">def</span> <span class="f">f</span>')
    True
    """
    return Markup("").join(_piece(kind, text) for kind, text in _tokens(source))


def _piece(kind: _TokenType, text: str) -> Markup:
    name = next((name for parent, name in _CLASSES if kind in parent), "")
    return Markup('<span class="{}">{}</span>').format(name, text) if name else escape(text)


def _tokens(source: str) -> Iterator[tuple[_TokenType, str]]:
    """Yield the tokens of Python, with those of CUDA instead of a string literal that holds CUDA."""
    literal = ""
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(source):
        if kind in String:
            literal += text
            continue
        yield from _literal(literal)
        literal = ""
        yield kind, text
    yield from _literal(literal)


def _literal(text: str) -> Iterator[tuple[_TokenType, str]]:
    if any(mark in text for mark in _NATIVE):
        yield from CudaLexer(stripnl=False, ensurenl=False).get_tokens(text)
    elif text:
        yield String, text
