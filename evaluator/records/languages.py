"""Languages of kernels, by their names on a card."""

from enum import StrEnum


class Toolchain(StrEnum):
    """Language of a submission's kernels, and the compiler behind it."""

    CUDA_INLINE = "cuda_inline"
    CPP = "cpp"
    TRITON = "triton"
    CUTE_DSL = "cute_dsl"
    TILELANG = "tilelang"
    NVRTC = "nvrtc"
    CUPY = "cupy"
    CUDA_PYTHON = "cuda_python"
    CUTLASS = "cutlass"
    THUNDERKITTENS = "thunderkittens"
