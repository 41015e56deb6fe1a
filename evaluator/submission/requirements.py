"""Requirements of a submission: a GPU, and packages.

C++ for CPU memory cannot use a GPU's tensors: the code refuses the tensors or crashes. C++ that calls only PyTorch
operations runs on any device, like Python.
"""

import importlib.util
import re

from evaluator.findings import Code, finding
from evaluator.languages.language import is_importable
from evaluator.languages.registry import MARKS, PACKAGES, install_command, language_of_package
from evaluator.records import DeviceKind, Finding

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


OF_THE_FIELD = ("numpy", *PACKAGES, "scipy", "einops", "numba", "transformers")
"""Packages used by submissions beside PyTorch; the installed packages are listed."""
_MISSING = re.compile(r"No module named '(?P<name>[A-Za-z_]\w{0,60})(?:\.[\w.]{1,100})?'")


def importable() -> list[str]:
    """Return the packages of the field available to submissions on this machine."""
    return ["torch", *(name for name in OF_THE_FIELD if importlib.util.find_spec(name) is not None)]


def missing_package(kind: str, message: str) -> str | None:
    """Return the package that an import did not find; None for any other exception.

    >>> missing_package("ModuleNotFoundError", "No module named 'einops.layers'")
    'einops'
    """
    match = _MISSING.match(message) if kind == "ModuleNotFoundError" else None
    # A missing part of an installed package is the submission's own mistake.
    return None if match is None or _is_there(match["name"]) else match["name"]


def missing_language(module: str) -> str | None:
    """Return the package of a kernel language that is not installed; None for any other module."""
    package = module.partition(".")[0]
    return None if language_of_package(package) is None or _is_there(package) else package


def missing_finding(package: str, line: int | None, device: DeviceKind) -> Finding:
    """Return the finding for a missing package. A missing kernel language says nothing about the submission."""
    if (language := language_of_package(package)) is not None:
        message = f"the kernel language {language.title} is not installed: {install_command(language)}"
        if device not in language.runs_on:
            devices = " and ".join(supported.value for supported in DeviceKind if supported in language.runs_on)
            message += f" ({language.title} runs on {devices}, not on {device.value})"
        return finding(Code.LANGUAGE_MISSING, message, line=line, package=package)
    message = f"the package {package} is not installed; installed packages: {', '.join(importable())}"
    return finding(Code.PACKAGE_MISSING, message, line=line, package=package)


def _is_there(name: str) -> bool:
    return is_importable(name, with_code=language_of_package(name) is not None)
