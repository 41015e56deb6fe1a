"""Inline CUDA and C++: extensions of PyTorch, compiled by nvcc and g++ (see `evaluator/compile/`)."""

from evaluator.languages.language import Language, Mentions, names
from evaluator.records import DeviceKind, Toolchain

EXTENSION = "torch.utils.cpp_extension"
_ANYWHERE = frozenset(DeviceKind)
_builds = names(EXTENSION)


def _is_cuda(mentions: Mentions) -> bool:
    return mentions.has_kernel and _builds(mentions)


def _is_cpp(mentions: Mentions) -> bool:
    return not mentions.has_kernel and _builds(mentions)


CUDA_INLINE = Language(
    toolchain=Toolchain.CUDA_INLINE,
    title="inline CUDA",
    is_in=_is_cuda,
    runs_on=frozenset((DeviceKind.CUDA, DeviceKind.EMULATED)),
)
CPP = Language(
    toolchain=Toolchain.CPP,
    title="C++",
    is_in=_is_cpp,
    runs_on=_ANYWHERE,
)
