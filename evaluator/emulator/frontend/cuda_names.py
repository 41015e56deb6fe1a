"""Names and headers of CUDA 13.0, present in the emulator or not, and the likely meanings of misspelt names.

`cuda_names.txt` holds functions, types, enumerators, macros, members (`cudaDeviceProp::major`) and headers, without
libraries and CCCL; `benchmarks/emulator/cuda_names.py` makes the list from the installed headers.
"""

import difflib
import functools
import posixpath
import re
from pathlib import Path

from evaluator.emulator.headers import header_names
from evaluator.toolchain import host_compiler

LIST = Path(__file__).with_suffix(".txt")
CUDA_NAMES = frozenset(LIST.read_text(encoding="utf-8").split())
"""Read on import: the sandbox of the front end hides the file."""
_CLOSE_NAME, _CLOSE_HEADER = 0.75, 0.88
_SPELLED = re.compile(r"(?P<start>__[a-z]|cuda[A-Z]|atomic)\w+")
"""Names that a submission hardly defines itself, and whose close neighbours are suggested."""
_REPLACED = dict.fromkeys(("cudaSynchronize", "cudaDeviceSync", "cudaThreadSynchronize"), "cudaDeviceSynchronize")
"""Names that mean another than the closest. A removed warp function has a replacement with `_sync` at its end."""


def meant_name(name: str, *, of_pytorch: bool) -> str | None:
    """Return the name of CUDA, or of `at::cuda`, closest to an undeclared name; None without a close name.

    >>> meant_name("__shfl_down", of_pytorch=False), meant_name("cudaSynchronize", of_pytorch=False)
    ('__shfl_down_sync', 'cudaDeviceSynchronize')
    """
    if (renamed := _REPLACED.get(name, f"{name}_sync")) in CUDA_NAMES:
        return renamed
    spelled = _SPELLED.fullmatch(name)
    start = "" if spelled is None else spelled["start"][:-1]
    names = _words_of_pytorch() if of_pytorch else CUDA_NAMES if start else frozenset[str]()
    candidates = [candidate for candidate in names if candidate.startswith(start) and candidate.isidentifier()]
    return next(iter(difflib.get_close_matches(name, candidates, 1, _CLOSE_NAME)), None)


def meant_header(name: str) -> str | None:
    """Return the emulator's header with nearly the same name in the same folder; None for headers of CUDA.

    >>> meant_header("ATen/cuda/CUDAContex.h"), meant_header("cuda_fp6.h")
    ('ATen/cuda/CUDAContext.h', None)
    """
    if name in CUDA_NAMES:
        return None
    folder, last = posixpath.split(name)
    headers = [posixpath.basename(header) for header in header_names() if posixpath.dirname(header) == folder]
    similar = difflib.get_close_matches(last, headers, 1, _CLOSE_HEADER)
    return posixpath.join(folder, similar[0]) if similar else None


def pytorch_declares(name: str) -> bool:
    """Return whether `at::cuda` or `c10::cuda` may have a name: PyTorch's headers have the word, or are missing."""
    return name in _words_of_pytorch() or not _words_of_pytorch()


@functools.cache
def _words_of_pytorch() -> frozenset[str]:
    """Return the words of PyTorch's CUDA headers."""
    headers = Path(host_compiler.include_paths()[0]).glob("[Ac]*/cuda/*.h")
    return frozenset().union(*(re.findall(r"\w+", path.read_text(encoding="utf-8")) for path in headers))
