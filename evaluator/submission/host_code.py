"""Detection of submissions with C++ for the CPU only. Text matching in linear time: nothing is parsed or run.

C++ for CPU memory cannot use a GPU's tensors: the code refuses the tensors or crashes. C++ that calls only PyTorch
operations runs on any device, like Python.
"""

import re

from evaluator.languages.registry import MARKS

_EXTENSION = re.compile(r"\b(?:load_inline|cpp_extension)\b|^\[extension\]", re.MULTILINE)
_HOST = re.compile(r"\bdata_ptr\b|\baccessor<|\bis_cpu\b|\bkCPU\b|\bparallel_for\b|#pragma omp\b|immintrin\.h")
_GPU = re.compile(
    r"__global__|<<<|\bkCUDA\b|torch\.cuda\b|['\"]cuda\b|\.cuda\(|\.cuh?['\">]|<cu(?:da|blas|dnn|fft|rand|sparse)"
    rf"|(?:ATen|c10)/(?:cuda|hip)/|\bnumba\b|\bthrust::|\b(?:{MARKS})\b"
)
_CUDA_SOURCES = re.compile(r"\bcuda_sources?\s*=\s*+(?!None\b|\[\s*\]|\(\s*\)|(?:''|\"\")(?!['\"]))")
_ON_A_GPU = re.compile(r"\bis_cuda\b")
_MOST_BEFORE = 80
_NEGATED = re.compile(r"!\s*[\w.]*$|\bnot\s+[\w.]*$")


def is_for_the_cpu(source: str) -> bool:
    r"""Return whether `source` builds C++ that accesses CPU memory, and contains nothing for a GPU.

    >>> is_for_the_cpu('load_inline(cpp_sources="float* p = x.data_ptr<float>();")')
    True
    >>> is_for_the_cpu('load_inline(cpp_sources="at::Tensor f(at::Tensor x) { return x.relu(); }")')
    False
    >>> is_for_the_cpu('load_inline(cuda_sources="k<<<1, 1>>>(x.data_ptr<float>());")')
    False
    """
    if not (_EXTENSION.search(source) and _HOST.search(source)):
        return False
    return not (_GPU.search(source) or _CUDA_SOURCES.search(source) or _asks_for_a_gpu(source))


def _asks_for_a_gpu(source: str) -> bool:
    """Return whether the code requires a tensor on a GPU; CPU code may well check that a tensor is not."""
    return any(
        _NEGATED.search(source, max(0, match.start() - _MOST_BEFORE), match.start()) is None
        for match in _ON_A_GPU.finditer(source)
    )
