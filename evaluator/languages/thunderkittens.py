"""ThunderKittens: headers for inline CUDA, from `$THUNDERKITTENS_ROOT`."""

from evaluator.languages.installations import headers
from evaluator.languages.language import Installation, Language, includes
from evaluator.records import DeviceKind, Toolchain

THUNDERKITTENS = Language(
    toolchain=Toolchain.THUNDERKITTENS,
    title="ThunderKittens",
    is_in=includes("kittens.cuh", "kittens/", "prototype.cuh"),
    runs_on=frozenset((DeviceKind.CUDA,)),
    installation=Installation(
        headers("THUNDERKITTENS_ROOT", "kittens.cuh", folders=("include", "prototype")),
        "git clone https://github.com/HazyResearch/ThunderKittens, then set THUNDERKITTENS_ROOT",
    ),
)
