"""Files of the emulator: CUDA headers, and the sources of the runtime."""

import difflib
import functools
import platform
import re
import subprocess
from pathlib import Path, PurePath

from evaluator.toolchain import host_compiler

INCLUDE = Path(__file__).parent / "include"

CUDA_HEADER = re.compile(
    r"cu[a-z]*\.h|cuda[\w/.]*|nv/.*|mma\.h|cooperative_groups.*|cub/.*|thrust/.*|cute/.*|cutlass/.*|curand.*"
    r"|cublas.*|cudnn.*|cusparse.*|cufft.*|cusolver.*|nvrtc.*|nccl.*|nvToolsExt.*|nvtx3/.*|sm_\d+_.*|device_.*"
    r"|texture_.*|surface_.*|vector_(?:types|functions).*|math_constants\.h|crt/.*"
    r"|(?:ATen|c10|THC|ATen/native|torch/csrc)/cuda/.*|THC/.*|ATen/cudnn/.*"
)
"""Names of headers of CUDA, or of a PyTorch built for CUDA."""
LIBRARY_HEADER = re.compile(rf"{CUDA_HEADER.pattern}|(?:torch|ATen|c10|pybind11)/.*|Python\.h|\w+")
"""Names of library headers: never a submission's own."""


def has_header(name: str) -> bool:
    """Return whether the emulator provides a header called `name`.

    >>> has_header("no/such/header.cuh")
    False
    """
    return name in header_names()


@functools.cache
def header_names() -> frozenset[str]:
    """Return all header names. A call before entering the sandbox caches the names; inside, no files are visible."""
    return frozenset(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*") if path.is_file())


def header_declaring(name: str) -> str | None:
    """Return the header of PyTorch's CUDA half with `name` in the emulator; of several, the one with the closest name.

    >>> header_declaring("CUDAGuard")
    'c10/cuda/CUDAGuard.h'
    """
    declaring = [header for header, words in _words_of_pytorch().items() if name in words]
    close = difflib.SequenceMatcher(None, "", name)

    def closeness(header: str) -> float:
        close.set_seq1(PurePath(header).stem)
        return close.ratio()

    return max(sorted(declaring), key=closeness, default=None)


@functools.cache
def _words_of_pytorch() -> dict[str, frozenset[str]]:
    paths = [path for path in header_names() if path.startswith(("ATen/cuda/", "c10/cuda/"))]
    return {path: frozenset(re.findall(r"\w+", (INCLUDE / path).read_text(encoding="utf-8"))) for path in paths}


_FOLDER = Path(__file__).parent


def runtime_sources() -> list[Path]:
    """Return the runtime's source files and private headers, all in one folder."""
    return sorted(path for path in (_FOLDER / "src").iterdir() if path.suffix in {".cpp", ".h"})


def header_files() -> list[Path]:
    """Return the headers shared by submissions and runtime."""
    return sorted(path for path in INCLUDE.rglob("*") if path.is_file())


def runtime_flags() -> list[str]:
    """Return the compile flags of the runtime, beyond the flags for all native code."""
    flags = ["-O2", "-DWARPGRADE_EMU_RUNTIME", f"-isystem{INCLUDE}", "-fvisibility=hidden", "-pthread"]
    return [*flags, *_thread_local_flags(), *_line_table_flags()]


def _thread_local_flags() -> list[str]:
    # TLS descriptors take a few instructions, the default model a function call. arm64 uses descriptors by default.
    return ["-mtls-dialect=gnu2"] if platform.machine() in {"x86_64", "AMD64"} else []


def _line_table_flags() -> list[str]:
    """Return the flags for fault line lookup, if the compiler includes libbacktrace (g++ on Debian)."""
    return ["-DWARPGRADE_EMU_BACKTRACE", "-lbacktrace"] if compiler_has("libbacktrace.a") else []


@functools.cache
def compiler_has(library: str) -> bool:
    """Return whether the compiler provides a library with the given file name."""
    argv = [host_compiler.cxx().path, f"-print-file-name={library}"]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    # For a missing library the compiler prints only the name.
    return Path(answer.stdout.strip()).is_absolute()
