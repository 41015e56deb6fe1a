"""CuPy: `RawKernel` and `RawModule` compile CUDA text by NVRTC, in the runner at the first call."""

from evaluator.languages.installations import distribution
from evaluator.languages.language import Installation, Language, names
from evaluator.records import DeviceKind, Toolchain

CUPY = Language(
    toolchain=Toolchain.CUPY,
    title="CuPy",
    is_in=names("cupy"),
    runs_on=frozenset((DeviceKind.CUDA,)),
    installation=Installation(
        distribution("cupy-cuda13x", "cupy-cuda12x", "cupy", package="cupy"), "pip install cupy-cuda13x"
    ),
    packages=("cupy",),
    code=("cupy", "cupy_backends"),
    compiler=("cupy.cuda.compiler",),
)
