"""Languages of a submission's kernels, by its text. Text matching in linear time: nothing is parsed or run."""

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
_MOST_KERNELS = 256


def toolchains(source: str) -> list[Toolchain]:
    """Return the languages that `source` names; none for plain PyTorch.

    >>> toolchains("import triton"), toolchains("load_inline(cpp_sources=CPP)"), toolchains("torch.relu(x)")
    ([<Toolchain.TRITON: 'triton'>], [<Toolchain.CPP: 'cpp'>], [])
    """
    return recognized(mentions_in_text(source))


def uses_triton(source: str) -> bool:
    """Return whether `source` names Triton."""
    return _TRITON.search(source) is not None


def triton_kernels(source: str) -> list[str]:
    r"""Return the names of the functions decorated with `triton.jit`.

    >>> triton_kernels("@triton.autotune(configs=[])\n@triton.jit\ndef relu_kernel(x, out):\n    pass\n")
    ['relu_kernel']
    """
    return sorted({match["name"] for match in _JIT.finditer(source)})[:_MOST_KERNELS]
