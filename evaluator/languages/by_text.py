"""Recognition by text, for text without valid Python. Text matching in linear time: nothing is parsed or run."""

import re

from evaluator.languages.extensions import EXTENSION
from evaluator.languages.language import Mentions

_IMPORT = re.compile(r"^[ \t]{0,200}(?:import|from)[ \t]+(?P<rest>[^\n#]{1,400})", re.MULTILINE)
_MODULE = re.compile(r"(?<![\w.])[A-Za-z_][\w.]{0,200}")
_USED = re.compile(r"\b(?:torch\.cuda\._compile_kernel|torch\.utils\.cpp_extension|triton\.jit)\b")
_EXTENSION = re.compile(r"\b(?:load_inline|cpp_extension)\b|^\[extension\]", re.MULTILINE)
_CUDA = re.compile(r"__global__|\bcuda_sources?\b|\.cuh?\b['\"]")
_INCLUDE = re.compile(r"^[ \t]{0,200}#[ \t]{0,20}include[ \t]{0,20}[<\"](?P<path>[^>\"\n]{1,200})[>\"]", re.MULTILINE)
_MOST = 4096


def mentions_in_text(source: str) -> Mentions:
    """Return the names in the import lines of `source`, a few further names, and all included headers.

    >>> sorted(mentions_in_text("import torch, tilelang  # not triton").dotted)
    ['tilelang', 'torch']
    """
    dotted = {name for line in _IMPORT.finditer(source) for name in _MODULE.findall(line["rest"])}
    dotted |= set(_USED.findall(source))
    if _EXTENSION.search(source) is not None:
        dotted.add(EXTENSION)
    return Mentions(frozenset(dotted), included_headers(source), has_kernel=_CUDA.search(source) is not None)


def included_headers(text: str) -> frozenset[str]:
    """Return the paths of all headers in the `#include` lines of C++ text."""
    return frozenset(match["path"] for _, match in zip(range(_MOST), _INCLUDE.finditer(text), strict=False))
