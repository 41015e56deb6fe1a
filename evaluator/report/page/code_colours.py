"""Python source, and the CUDA text in its string literals, as escaped HTML with classes for colours.

Submissions write the source: the scanner takes linear time for every text. No repeat backtracks, and an alternative
reads at most ten characters before the last point of failure. Pygments needs 1 s for the 4 kB of `"%000...`, and time
grows with the square of the length.
"""

import keyword
import re
from collections.abc import Iterator

from markupsafe import Markup, escape

_LINE_STRINGS = r"""
    "(?:[^"\\\n]|\\.)*+"?
    | '(?:[^'\\\n]|\\.)*+'?
"""
_OTHERS = r"(?P<m>\d(?:[eEpP][+-]|[\w.])*+) | (?P<word>[^\W\d]\w*+)"
# The end of a string or comment is optional: without the end, the text reaches to the end of the source.
_PYTHON = re.compile(
    rf"""
    (?P<c>\#[^\n]*+)
    | (?P<s>[bBfFrRuU]{{0,2}}(?:
        \"{{3}}(?:[^"\\]|\\.|"(?!""))*+(?:\"{{3}})?
        | '{{3}}(?:[^'\\]|\\.|'(?!''))*+(?:'{{3}})?
        | {_LINE_STRINGS}))
    | (?P<f>@[\w.]++)
    | {_OTHERS}
    """,
    re.VERBOSE | re.DOTALL,
)
_CUDA = re.compile(
    rf"""
    (?P<c>//[^\n]*+ | /\*(?:[^*]|\*(?!/))*+(?:\*/)?)
    | (?P<k>^[ ]{{0,8}}\#[ ]?\w++)
    | (?P<s>{_LINE_STRINGS})
    | {_OTHERS}
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_CUDA_WORDS = frozenset(
    re.findall(
        r"\w+",
        "alignas auto bool break case char class const constexpr continue default delete do double else enum extern "
        "false float for goto if inline int long namespace new nullptr operator private public return short signed "
        "sizeof static struct switch template this true typedef typename union unsigned using virtual void volatile "
        "while __constant__ __device__ __forceinline__ __global__ __host__ __launch_bounds__ __restrict__ __shared__",
    )
)
_PYTHON_WORDS = frozenset(keyword.kwlist)
_NATIVE = ("__global__", "#include", "__device__")
_OPENING = re.compile(r"""[bBfFrRuU]{0,2}(\"{3}|'{3}|"|')""")


def coloured(source: str) -> Markup:
    """Return `source` as HTML. The text between the tags equals `source`.

    >>> str(coloured("def f(): '<'"))
    '<span class="k">def</span> <span class="f">f</span>(): <span class="s">&#39;&lt;&#39;</span>'
    """
    return Markup("".join(_html_spans(source)))  # noqa: S704 - every piece is escaped


def _html_spans(source: str) -> Iterator[str]:
    for kind, text in _tokens(source, _PYTHON, _PYTHON_WORDS):
        if kind == "s" and any(mark in text for mark in _NATIVE):
            yield from (_html_span(*token) for token in _native(text))
        else:
            yield _html_span(kind, text)


def _native(literal: str) -> Iterator[tuple[str, str]]:
    """Yield the tokens of a string literal that holds CUDA: the quotes as a string, the text between as CUDA."""
    opening = _OPENING.match(literal)
    begin = 0 if opening is None else opening.end()
    end = (
        len(literal) - len(opening[1]) if opening is not None and literal.endswith(opening[1], begin) else len(literal)
    )
    yield "s", literal[:begin]
    yield from _tokens(literal[begin:end], _CUDA, _CUDA_WORDS)
    yield "s", literal[end:]


def _html_span(kind: str, text: str) -> str:
    return f'<span class="{kind}">{escape(text)}</span>' if kind and text else str(escape(text))


def _tokens(source: str, scanner: re.Pattern[str], keywords: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield classes of colours, empty for none, with the texts. A name followed by `(` has the colour of a function."""
    end = 0
    for token in scanner.finditer(source):
        kind = token.lastgroup or ""
        if kind == "word":
            called = source.startswith("(", token.end())
            kind = "k" if token[0] in keywords else "f" if called else ""
        if kind:
            yield "", source[end : token.start()]
            yield kind, token[0]
            end = token.end()
    yield "", source[end:]
