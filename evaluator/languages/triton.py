"""Triton. `evaluator/runner/triton/` has compile errors, compiled kernels, and the interpreter."""

from evaluator.languages.installations import distribution
from evaluator.languages.language import Installation, Language, names
from evaluator.records import DeviceKind, Toolchain

TRITON = Language(
    toolchain=Toolchain.TRITON,
    title="Triton",
    is_in=names("triton"),
    runs_on=frozenset((DeviceKind.CUDA, DeviceKind.EMULATED)),
    installation=Installation(distribution("triton", package="triton"), "pip install 'warpgrade[triton]'"),
    packages=("triton",),
    code=("triton",),
)
