"""ThunderKittens: headers for inline CUDA, from `$THUNDERKITTENS_ROOT`."""

from evaluator.languages.installations import headers
from evaluator.languages.language import Language, includes
from evaluator.records import DeviceKind, Toolchain

THUNDERKITTENS = Language(
    toolchain=Toolchain.THUNDERKITTENS,
    title="ThunderKittens",
    is_in=includes("kittens.cuh", "kittens/", "prototype.cuh"),
    runs_on=frozenset((DeviceKind.CUDA,)),
    find=headers("THUNDERKITTENS_ROOT", "kittens.cuh", folders=("include", "prototype")),
    install="git clone https://github.com/HazyResearch/ThunderKittens, and set THUNDERKITTENS_ROOT to the clone",
)
