"""CUTLASS and CuTe in C++: headers for inline CUDA, from `$CUTLASS_PATH` or the package nvidia-cutlass."""

from evaluator.languages.installations import headers
from evaluator.languages.language import Installation, Language, includes
from evaluator.records import DeviceKind, Toolchain

CUTLASS = Language(
    toolchain=Toolchain.CUTLASS,
    title="CUTLASS C++",
    is_in=includes("cutlass/", "cute/"),
    runs_on=frozenset((DeviceKind.CUDA,)),
    installation=Installation(
        headers(
            "CUTLASS_PATH", "cutlass/version.h", folders=("include", "tools/util/include"), package="cutlass_library"
        ),
        "pip install nvidia-cutlass (or set CUTLASS_PATH to a clone of github.com/NVIDIA/cutlass)",
    ),
)
