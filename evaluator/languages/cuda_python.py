"""cuda-python: NVRTC and the driver, called by the submission's own Python.

`cuda.core.Program` raises the compiler's errors. `cuda.bindings.nvrtc` returns them as numbers, and every exception
after such an error is the submission's own.
"""

from evaluator.languages.installations import distribution
from evaluator.languages.language import Installation, Language, names
from evaluator.records import DeviceKind, Toolchain

CUDA_PYTHON = Language(
    toolchain=Toolchain.CUDA_PYTHON,
    title="cuda-python",
    is_in=names("cuda.bindings", "cuda.core", "cuda.nvrtc", "cuda.cuda", "cuda.cudart"),
    runs_on=frozenset((DeviceKind.CUDA,)),
    installation=Installation(distribution("cuda-python", "cuda-bindings", package="cuda"), "pip install cuda-python"),
    packages=("cuda",),
    code=("cuda.bindings", "cuda.core"),
    compiler=("cuda.core._program", "cuda.core.experimental._program"),
)
