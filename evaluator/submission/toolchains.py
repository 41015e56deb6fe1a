"""Languages of a submission's kernels, by its text. Text matching in linear time: nothing is parsed or run."""

import itertools
import re

from evaluator.languages.by_text import mentions_in_text
from evaluator.languages.registry import recognized
from evaluator.records import Toolchain

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
_MOST_KERNELS = 256
_MOST_HEADS = 4096


def toolchains(source: str) -> list[Toolchain]:
    """Return the languages that `source` names; none for plain PyTorch.

    >>> toolchains("import triton"), toolchains("load_inline(cpp_sources=CPP)"), toolchains("torch.relu(x)")
    ([<Toolchain.TRITON: 'triton'>], [<Toolchain.CPP: 'cpp'>], [])
    """
    return recognized(mentions_in_text(source))


def uses_triton(source: str) -> bool:
    """Return whether `source` names Triton."""
    return _TRITON.search(source) is not None


def jit_kernels(source: str) -> list[str]:
    """Return the names of the kernels in the text that a runner compiles and can leave out: Triton's and NVRTC's."""
    return sorted({*triton_kernels(source), *nvrtc_kernels(source)})[:_MOST_KERNELS]


def nvrtc_kernels(source: str) -> list[str]:
    r"""Return the names of the CUDA kernels in a text that calls `torch.cuda._compile_kernel`.

    >>> text = 'K = "__global__ void __launch_bounds__(256) relu(float* x) {"\ntorch.cuda._compile_kernel(K, "relu")'
    >>> nvrtc_kernels(text), nvrtc_kernels("__global__ void relu(float* x) {")
    (['relu'], [])
    """
    if _NVRTC.search(source) is None:
        return []
    heads = (_BOUNDS.sub("", found["head"]) for found in itertools.islice(_GLOBAL.finditer(source), _MOST_HEADS))
    return sorted({name["name"] for head in heads if (name := _CALLED.search(head)) is not None})[:_MOST_KERNELS]


def triton_kernels(source: str) -> list[str]:
    r"""Return the names of the functions decorated with `triton.jit`.

    >>> triton_kernels("@triton.autotune(configs=[])\n@triton.jit\ndef relu_kernel(x, out):\n    pass\n")
    ['relu_kernel']
    """
    return sorted({match["name"] for match in _JIT.finditer(source)})[:_MOST_KERNELS]
