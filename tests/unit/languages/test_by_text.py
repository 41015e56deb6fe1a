"""The languages that a submission's text names, and the names of its Triton kernels."""

import time

import pytest

from evaluator.languages.language import mentions_in_text, triton_kernels
from evaluator.languages.registry import recognized
from evaluator.records import Toolchain

CUDA, CPP, TRITON = Toolchain.CUDA_INLINE, Toolchain.CPP, Toolchain.TRITON


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch\ntorch.relu(x)", []),
        ("import triton", [TRITON]),
        ("import torch, triton", [TRITON]),
        ("    from triton import language as tl", [TRITON]),
        ("from torch.utils._triton import has_triton", []),
        ("import torch  # not triton", []),
        ('load_inline(name="x", cpp_sources=S, cuda_sources=C)', [CUDA]),
        ('load_inline(name="x", cpp_sources=S)', [CPP]),
        ('cpp_extension.load(name="x", sources=["a.cu"])', [CUDA]),
        ("import triton\nload_inline(cuda_sources=C)", [TRITON, CUDA]),
        ("__global__", []),
    ],
)
def test_the_text_names_its_languages(source, expected):
    assert recognized(mentions_in_text(source)) == expected


DECORATED = """
@triton.jit
def plain(x): pass
@triton.jit(do_not_specialize=["n"])
def called(x, n): pass
@triton.autotune(
    configs=[triton.Config({})],
    key=[],
)
@triton.jit
# A remark.

def tuned(x): pass
class Holder:
    @jit
    @staticmethod
    def inner(x): pass
def host(x): pass
@functools.cache
def cached(x): pass
"""


def test_the_kernels_are_those_with_the_decorator():
    assert triton_kernels(DECORATED) == ["called", "inner", "plain", "tuned"]


@pytest.mark.parametrize("part", ["@jit\n", "@jit", "import x ", "@triton.jit\n#\n", "@jit(\n", "from " + " " * 300])
def test_a_hostile_text_takes_no_time(part):
    text = part * ((1 << 20) // len(part))
    started = time.thread_time()
    triton_kernels(text)
    mentions_in_text(text)
    assert time.thread_time() - started < 60.0


def test_many_kernels_are_cut():
    assert len(triton_kernels("".join(f"@triton.jit\ndef k{n}(): pass\n" for n in range(1000)))) == 256
