"""The emulator's own headers, in `include/`, and the names of those that come with CUDA and PyTorch."""

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
"""Names of headers that come with CUDA, or with a PyTorch for CUDA."""
LIBRARY_HEADER = re.compile(rf"{CUDA_HEADER.pattern}|(?:torch|ATen|c10|pybind11)/.*|Python\.h|\w+")
"""Names of headers that are no submission's own."""


def has_header(name: str) -> bool:
    """Say whether the emulator has a header called `name`.

    >>> has_header("no/such/header.cuh")
    False
    """
    return name in _names()


@functools.cache
def _names() -> frozenset[str]:
    """Name them all. Who asks before the walls go up has them afterwards, where no file can be looked for."""
    return frozenset(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*") if path.is_file())
