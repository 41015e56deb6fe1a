"""TileLang: Python compiled through TVM and nvcc, in the runner at the first call."""

from evaluator.languages.installations import distribution
from evaluator.languages.language import Installation, Language, names
from evaluator.records import DeviceKind, Toolchain

TILELANG = Language(
    toolchain=Toolchain.TILELANG,
    title="TileLang",
    is_in=names("tilelang"),
    runs_on=frozenset((DeviceKind.CUDA,)),
    installation=Installation(distribution("tilelang", package="tilelang"), "pip install tilelang"),
    packages=("tilelang",),
    code=("tilelang",),
    compiler=("tilelang",),
    launcher=("tilelang.jit.kernel.JITKernel.__call__",),
)
