"""Languages and kernels by text, also without valid Python. Matching takes linear time: nothing is parsed or run."""

import itertools
import re

from evaluator.languages.language import Mentions

EXTENSION = "torch.utils.cpp_extension"
_IMPORT = re.compile(r"^[ \t]{0,200}(?:import|from)[ \t]+(?P<rest>[^\n#]{1,400})", re.MULTILINE)
_MODULE = re.compile(r"(?<![\w.])[A-Za-z_][\w.]{0,200}")
_USED = re.compile(r"\b(?:torch\.cuda\._compile_kernel|torch\.utils\.cpp_extension|triton\.jit)\b")
_EXTENSION = re.compile(r"\b(?:load_inline|cpp_extension)\b|^\[extension\]", re.MULTILINE)
_CUDA = re.compile(r"__global__|\bcuda_sources?\b|\.cuh?\b['\"]")
_INCLUDE = re.compile(r"^[ \t]{0,200}#[ \t]{0,20}include[ \t]{0,20}[<\"](?P<path>[^>\"\n]{1,200})[>\"]", re.MULTILINE)
_TRITON = re.compile(r"^[ \t]*(?:import|from)[ \t][^\n#]{0,400}\btriton\b|\btriton\.jit\b", re.MULTILINE)
_JIT = re.compile(
    r"^[ \t]*@(?:triton\.)?jit\b[^\n]{0,400}\n(?:[ \t]*(?:[@#)][^\n]{0,400})?\n){0,8}"
    r"[ \t]*def[ \t]+(?P<name>\w{1,200})",
    re.MULTILINE,
)
"""A kernel's decorator, up to eight further lines, and its `def`. The bounds keep the time linear."""
_NVRTC = re.compile(r"\b_compile_kernel\b")
_GLOBAL = re.compile(r"\b__global__\b(?P<head>[^;{}='\"]{0,400})")
_BOUNDS = re.compile(r"__launch_bounds__\s{0,9}\([^()]{0,80}\)")
_CALLED = re.compile(r"\b(?P<name>[A-Za-z_]\w{0,200})\s{0,9}\(")
MOST_KERNELS = 256
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


def uses_triton(source: str) -> bool:
    """Return whether `source` names Triton."""
    return _TRITON.search(source) is not None


def nvrtc_kernels(source: str) -> list[str]:
    r"""Return the names of the CUDA kernels in a text that calls `torch.cuda._compile_kernel`.

    >>> text = 'K = "__global__ void __launch_bounds__(256) relu(float* x) {"\ntorch.cuda._compile_kernel(K, "relu")'
    >>> nvrtc_kernels(text), nvrtc_kernels("__global__ void relu(float* x) {")
    (['relu'], [])
    """
    if _NVRTC.search(source) is None:
        return []
    heads = (_BOUNDS.sub("", match["head"]) for match in itertools.islice(_GLOBAL.finditer(source), _MOST))
    return sorted({name["name"] for head in heads if (name := _CALLED.search(head)) is not None})[:MOST_KERNELS]


def triton_kernels(source: str) -> list[str]:
    r"""Return the names of the functions decorated with `triton.jit`.

    >>> triton_kernels("@triton.autotune(configs=[])\n@triton.jit\ndef relu_kernel(x, out):\n    pass\n")
    ['relu_kernel']
    """
    return sorted({match["name"] for match in _JIT.finditer(source)})[:MOST_KERNELS]
