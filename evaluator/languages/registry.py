"""All languages of kernels, each a `Language`, and searches among them."""

from collections.abc import Sequence

from evaluator.languages.language import (
    EXTENSION,
    MOST_KERNELS,
    Installation,
    Language,
    Mentions,
    Package,
    begins_with,
    distribution,
    headers,
    includes,
    names,
    nvrtc_kernels,
    triton_kernels,
)
from evaluator.records import DeviceKind, Toolchain

_GPU = frozenset((DeviceKind.CUDA,))
_GPU_OR_EMULATED = frozenset((DeviceKind.CUDA, DeviceKind.EMULATED))
_builds = names(EXTENSION)


def _is_cuda(mentions: Mentions) -> bool:
    return mentions.has_kernel and _builds(mentions)


def _is_cpp(mentions: Mentions) -> bool:
    return not mentions.has_kernel and _builds(mentions)


# `evaluator/runner/triton/` has compile errors, compiled kernels, and the interpreter.
TRITON = Language(
    toolchain=Toolchain.TRITON,
    title="Triton",
    is_in=names("triton"),
    runs_on=_GPU_OR_EMULATED,
    installation=Installation(distribution("triton", package="triton"), "pip install 'warpgrade[triton]'"),
    packages=("triton",),
    code=("triton",),
    marks=("triton",),
    decorators=("triton.jit", "triton.runtime.jit.jit"),
    kernels=triton_kernels,
)
# `torch.cuda._compile_kernel`, a part of PyTorch. `runner/nvrtc.py` is the emulator's form.
NVRTC = Language(
    toolchain=Toolchain.NVRTC,
    title="NVRTC of PyTorch",
    is_in=names("torch.cuda._compile_kernel", "torch.cuda._utils._nvrtc_compile"),
    runs_on=_GPU_OR_EMULATED,
    installation=Installation(
        distribution("torch", package="torch"), "install a GPU build of PyTorch and the CUDA toolkit, and set CUDA_HOME"
    ),
    code=("torch.cuda._utils._nvrtc_compile", "torch.cuda._utils._cuda_load_module", "torch.cuda._utils._CudaKernel"),
    compiler=("torch.cuda._utils._nvrtc_compile", "torch.cuda._utils._cuda_load_module"),
    marks=("_compile_kernel", r"nvrtc\w*"),
    kernels=nvrtc_kernels,
)
# Python of the CUTLASS project, compiled in the runner at the first call.
CUTE_DSL = Language(
    toolchain=Toolchain.CUTE_DSL,
    title="CuTe DSL",
    is_in=names("cutlass"),
    runs_on=_GPU,
    installation=Installation(distribution("nvidia-cutlass-dsl", package="cutlass"), "pip install nvidia-cutlass-dsl"),
    packages=("cutlass",),
    code=("cutlass",),
    compiler=("cutlass.base_dsl", "cutlass.cutlass_dsl"),
    launcher=("cutlass.base_dsl.jit_executor",),
    marks=("cutlass",),
)
# Python compiled through TVM and nvcc, in the runner at the first call.
TILELANG = Language(
    toolchain=Toolchain.TILELANG,
    title="TileLang",
    is_in=names("tilelang"),
    runs_on=_GPU,
    installation=Installation(distribution("tilelang", package="tilelang"), "pip install tilelang"),
    packages=("tilelang",),
    code=("tilelang",),
    compiler=("tilelang",),
    launcher=("tilelang.jit.kernel.JITKernel.__call__",),
    marks=("tilelang",),
)
# `RawKernel` and `RawModule` compile CUDA text by NVRTC, in the runner at the first call.
CUPY = Language(
    toolchain=Toolchain.CUPY,
    title="CuPy",
    is_in=names("cupy"),
    runs_on=_GPU,
    installation=Installation(
        distribution("cupy-cuda13x", "cupy-cuda12x", "cupy", package="cupy"), "pip install cupy-cuda13x"
    ),
    packages=("cupy",),
    code=("cupy", "cupy_backends"),
    compiler=("cupy.cuda.compiler",),
    marks=("cupy", "RawKernel"),
)
# NVRTC and the driver, called by the submission's own Python. `cuda.core.Program` raises the compiler's errors.
# `cuda.bindings.nvrtc` returns them as numbers, and every exception after such an error is the submission's own.
CUDA_PYTHON = Language(
    toolchain=Toolchain.CUDA_PYTHON,
    title="cuda-python",
    is_in=names("cuda.bindings", "cuda.core", "cuda.nvrtc", "cuda.cuda", "cuda.cudart"),
    runs_on=_GPU,
    installation=Installation(distribution("cuda-python", "cuda-bindings", package="cuda"), "pip install cuda-python"),
    packages=("cuda",),
    code=("cuda.bindings", "cuda.core"),
    compiler=("cuda.core._program", "cuda.core.experimental._program"),
    marks=(r"nvrtc\w*", r"cuda\.core"),
)
CUTLASS = Language(
    toolchain=Toolchain.CUTLASS,
    title="CUTLASS C++",
    is_in=includes("cutlass/", "cute/"),
    runs_on=_GPU,
    installation=Installation(
        headers(
            "CUTLASS_PATH", "cutlass/version.h", folders=("include", "tools/util/include"), package="cutlass_library"
        ),
        "pip install nvidia-cutlass (or set CUTLASS_PATH to a clone of github.com/NVIDIA/cutlass)",
    ),
)
THUNDERKITTENS = Language(
    toolchain=Toolchain.THUNDERKITTENS,
    title="ThunderKittens",
    is_in=includes("kittens.cuh", "kittens/", "prototype.cuh"),
    runs_on=_GPU,
    installation=Installation(
        headers("THUNDERKITTENS_ROOT", "kittens.cuh", folders=("include", "prototype")),
        "git clone https://github.com/HazyResearch/ThunderKittens, then set THUNDERKITTENS_ROOT",
    ),
)
# Extensions of PyTorch, compiled by nvcc and g++ (see `evaluator/compile/`).
CUDA_INLINE = Language(Toolchain.CUDA_INLINE, "inline CUDA", _is_cuda, _GPU_OR_EMULATED)
CPP = Language(Toolchain.CPP, "C++", _is_cpp, frozenset(DeviceKind))

HEADER_LIBRARIES = (CUTLASS, THUNDERKITTENS)
"""Languages of C++ headers, for builds by nvcc."""
LANGUAGES = (TRITON, NVRTC, CUTE_DSL, TILELANG, CUPY, CUDA_PYTHON, *HEADER_LIBRARIES, CUDA_INLINE, CPP)


MARKS = "|".join(mark for language in LANGUAGES for mark in language.marks)
"""Regular expression for the names of all languages with kernels compiled in the runner, at the first call."""
PACKAGES = tuple(package for language in LANGUAGES for package in language.packages)
DECORATORS = frozenset(decorator for language in LANGUAGES for decorator in language.decorators)


def recognized(mentions: Mentions) -> list[Toolchain]:
    """Return the languages by the names; none for plain PyTorch.

    >>> recognized(Mentions(frozenset({"triton.language"}), frozenset(), has_kernel=False))
    [<Toolchain.TRITON: 'triton'>]
    """
    return [language.toolchain for language in LANGUAGES if language.is_in(mentions)]


def jit_kernels(source: str) -> list[str]:
    """Return the names of the kernels in the text that a runner compiles and can leave out (Triton, NVRTC)."""
    readers = (language.kernels for language in LANGUAGES if language.kernels is not None)
    return sorted({name for kernels in readers for name in kernels(source)})[:MOST_KERNELS]


def language_of_package(package: str) -> Language | None:
    """Return the language of a root package."""
    return next((language for language in LANGUAGES if package in language.packages), None)


def found_installation(language: Language) -> Package | None:
    """Return the installation of a language; None if missing, and for the languages of the C++ and CUDA compilers."""
    return None if language.installation is None else language.installation.find()


def install_command(language: Language) -> str:
    """Return the command for the installation of a language."""
    return "warpgrade doctor" if language.installation is None else language.installation.command


def failed_language(frames: Sequence[str]) -> Language | None:
    """Return the first language on the stack of an exception; `frames` are functions, outermost first."""
    for frame in frames:
        for language in LANGUAGES:
            if begins_with(frame, language.code):
                return language
    return None


def failed_at_import(language: Language, frames: Sequence[str]) -> bool:
    """Return whether the submission imported the language, and the import itself failed.

    >>> from evaluator.languages.registry import TILELANG
    >>> failed_at_import(TILELANG, ["submission.<module>", "tilelang.<module>", "z3.z3core.<module>"])
    True
    >>> failed_at_import(TILELANG, ["submission.<module>", "tilelang.jit.jit", "tilelang.engine.<module>"])
    False
    """
    first = next((frame for frame in frames if begins_with(frame, language.code)), "")
    return first.endswith(".<module>")


def failed_in_compiler(language: Language, frames: Sequence[str]) -> bool:
    """Return whether an exception came from the language's compiler, and not from a launch."""
    launched = any(begins_with(frame, language.launcher) for frame in frames)
    return not launched and any(begins_with(frame, language.compiler) for frame in frames)
