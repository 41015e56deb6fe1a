"""cuda-python: NVRTC and the driver, called by the submission's own Python."""

from evaluator.languages.installations import distribution
from evaluator.languages.language import Installation, Language, names
from evaluator.records import DeviceKind, Toolchain

CUDA_PYTHON = Language(
    toolchain=Toolchain.CUDA_PYTHON,
    title="cuda-python",
    is_in=names("cuda.bindings", "cuda.core", "cuda.nvrtc", "cuda.cuda", "cuda.cudart"),
    runs_on=frozenset((DeviceKind.CUDA,)),
    installation=Installation(distribution("cuda-python", "cuda-bindings"), "pip install cuda-python"),
    packages=("cuda",),
    code=("cuda.bindings", "cuda.core"),
)
