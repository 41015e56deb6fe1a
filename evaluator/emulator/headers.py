"""Names of the emulator's own headers in `include/`, and name patterns of CUDA and PyTorch headers."""

import functools
import re
from pathlib import Path

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
    return name in _names()


@functools.cache
def _names() -> frozenset[str]:
    """Return all header names. A call before entering the sandbox caches the names; inside, no files are visible."""
    return frozenset(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*") if path.is_file())
