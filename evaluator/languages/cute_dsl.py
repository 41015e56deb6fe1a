"""CuTe DSL: Python of the CUTLASS project, compiled in the runner at the first call."""

from evaluator.languages.installations import distribution
from evaluator.languages.language import Installation, Language, names
from evaluator.records import DeviceKind, Toolchain

CUTE_DSL = Language(
    toolchain=Toolchain.CUTE_DSL,
    title="CuTe DSL",
    is_in=names("cutlass"),
    runs_on=frozenset((DeviceKind.CUDA,)),
    installation=Installation(distribution("nvidia-cutlass-dsl", package="cutlass"), "pip install nvidia-cutlass-dsl"),
    packages=("cutlass",),
    code=("cutlass",),
    compiler=("cutlass.base_dsl", "cutlass.cutlass_dsl"),
    launcher=("cutlass.base_dsl.jit_executor",),
)
