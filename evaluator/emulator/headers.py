"""Names of the emulator's own headers in `include/`, and name patterns of CUDA and PyTorch headers."""

import difflib
import functools
import re
from pathlib import Path, PurePath

INCLUDE = Path(__file__).parent / "include"

CUDA_HEADER = re.compile(
    r"cu[a-z]*\.h|cuda[\w/.]*|nv/.*|mma\.h|cooperative_groups.*|cub/.*|thrust/.*|cute/.*|cutlass/.*|curand.*"
    r"|cublas.*|cudnn.*|cusparse.*|cufft.*|cusolver.*|nvrtc.*|nccl.*|nvToolsExt.*|nvtx3/.*|sm_\d+_.*|device_.*"
    r"|texture_.*|surface_.*|vector_(?:types|functions).*|math_constants\.h|crt/.*"
    r"|(?:ATen|c10|THC|ATen/native|torch/csrc)/cuda/.*|THC/.*|ATen/cudnn/.*"
)
"""Names of headers of CUDA, or of a PyTorch built for CUDA."""
LIBRARY_HEADER = re.compile(rf"{CUDA_HEADER.pattern}|(?:torch|ATen|c10|pybind11)/.*|Python\.h|\w+")
"""Names of library headers: never a submission's own."""


def has_header(name: str) -> bool:
    """Return whether the emulator provides a header called `name`.

    >>> has_header("no/such/header.cuh")
    False
    """
    return name in header_names()


@functools.cache
def header_names() -> frozenset[str]:
    """Return all header names. A call before entering the sandbox caches the names; inside, no files are visible."""
    return frozenset(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*") if path.is_file())


def header_declaring(name: str) -> str | None:
    """Return the header of PyTorch's CUDA half with `name` in the emulator; of several, the one with the closest name.

    >>> header_declaring("CUDAGuard")
    'c10/cuda/CUDAGuard.h'
    """
    declaring = [header for header, words in _words_of_pytorch().items() if name in words]
    close = difflib.SequenceMatcher(None, "", name)

    def closeness(header: str) -> float:
        close.set_seq1(PurePath(header).stem)
        return close.ratio()

    return max(sorted(declaring), key=closeness, default=None)


@functools.cache
def _words_of_pytorch() -> dict[str, frozenset[str]]:
    paths = [path for path in header_names() if path.startswith(("ATen/cuda/", "c10/cuda/"))]
    return {path: frozenset(re.findall(r"\w+", (INCLUDE / path).read_text(encoding="utf-8"))) for path in paths}
