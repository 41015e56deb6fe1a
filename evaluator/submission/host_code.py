"""Whether a submission's text is C++ for the CPU alone. Text only: nothing is parsed or run, in linear time.

C++ that reads a tensor's memory on the CPU has no business with a GPU's tensors, and refuses them or dies of them.
C++ that calls PyTorch's operations alone runs on any device, and so does Python.
"""

import re

_EXTENSION = re.compile(r"\b(?:load_inline|cpp_extension)\b")
_HOST = re.compile(r"\bdata_ptr\b|\baccessor<|\bis_cpu\b|\bkCPU\b|\bparallel_for\b|#pragma omp\b|immintrin\.h")
_GPU = re.compile(
    r"__global__|<<<|\bkCUDA\b|torch\.cuda\b|['\"]cuda\b|\.cuda\(|\.cuh?['\">]|<cu(?:da|blas|dnn|fft|rand|sparse)"
    r"|(?:ATen|c10)/(?:cuda|hip)/|\btriton\b|\bcupy\b|\bnumba\b|\bcutlass\b|\bthrust::|\bnvrtc|\btilelang\b"
)
_CUDA_SOURCES = re.compile(r"\bcuda_sources?\s*=\s*+(?!None\b|\[\s*\]|\(\s*\)|(?:''|\"\")(?!['\"]))")
_ON_A_GPU = re.compile(r"\bis_cuda\b")
_MOST_BEFORE = 80
_NEGATED = re.compile(r"!\s*[\w.]*$|\bnot\s+[\w.]*$")


def is_for_the_cpu(source: str) -> bool:
    r"""Say whether `source` builds C++ that works on the CPU's memory, and nothing in it is for a GPU.

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
    """Say whether a tensor is asked to be on a GPU; that it is not there may well be asked by C++ for the CPU."""
    return any(
        _NEGATED.search(source, max(0, found.start() - _MOST_BEFORE), found.start()) is None
        for found in _ON_A_GPU.finditer(source)
    )
