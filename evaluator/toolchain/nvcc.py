"""CUDA compiler and disassembler of this machine, and the command lines of PyTorch's extension builder."""

import functools
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import ToolchainMissing
from evaluator.toolchain import host_compiler
from evaluator.toolchain.host_compiler import InstalledTool, joined, language_standard

_HINT = "install the CUDA toolkit (13.0 for PyTorch's cu130) and set CUDA_HOME to its folder"
_FIRST_WITH_SUFFIX = 9
"""From compute capability 9.0 on, architecture-specific instructions (wgmma, tcgen05) need the `a` of `sm_90a`."""

FRONT_ENDS = Path(__file__).with_name("front_ends.sh")
"""Script that runs nvcc's two front ends at the same time, and plain nvcc for an unknown plan of programs."""
FRONT_ENDS_NAME = ".front_ends.sh"
"""Name of the script in the compiler's folder. No path of a submission begins with a dot."""

PYTORCH_NVCC_FLAGS = [
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
]


class CompileUnit(NamedTuple):
    """Source file, and whether nvcc compiles the file."""

    source: str
    cuda: bool


def architecture(major: int, minor: int) -> str:
    """Return the architecture for a compute capability, including architecture-specific features.

    >>> architecture(9, 0), architecture(8, 6), architecture(12, 0)
    ('90a', '86', '120a')
    """
    return f"{major}{minor}{'a' if major >= _FIRST_WITH_SUFFIX else ''}"


@functools.cache
def cuda_home() -> Path:
    """Find the CUDA toolkit: `$CUDA_HOME`, `$CUDA_PATH`, around nvcc, /usr/local/cuda. Raises ToolchainMissing."""
    if chosen := os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH"):
        if _is_toolkit(Path(chosen)):
            return Path(chosen)
        raise ToolchainMissing(f"{chosen} (CUDA_HOME) has no bin/nvcc and include/cuda_runtime.h", hint=_HINT)
    on_path = shutil.which("nvcc")
    places = [Path(on_path).resolve().parents[1]] if on_path else []
    for folder in [*places, Path("/usr/local/cuda")]:
        if _is_toolkit(folder):
            return folder
    raise ToolchainMissing("no CUDA compiler: nvcc not found", hint=_HINT)


def _is_toolkit(folder: Path) -> bool:
    return os.access(folder / "bin" / "nvcc", os.X_OK) and (folder / "include" / "cuda_runtime.h").exists()


@functools.cache
def nvcc() -> InstalledTool:
    """Find nvcc and its version. Raises ToolchainMissing."""
    path = str(cuda_home() / "bin" / "nvcc")
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60)
    lines = answer.stdout.strip().splitlines()
    if answer.returncode != 0 or not lines:
        raise ToolchainMissing(f"{path} does not run", hint=_HINT)
    return InstalledTool(path, lines[-1].strip())


def fingerprint() -> dict[str, str]:
    """Return everything outside the submission that determines a library's contents."""
    return host_compiler.fingerprint() | {"nvcc": nvcc().version, "cuda": str(cuda_home())}


def include_flags() -> list[str]:
    """Return the header folders in PyTorch's order, also for a PyTorch built without CUDA."""
    folders = [*host_compiler.include_paths(), str(cuda_home() / "include"), sysconfig.get_paths()["include"]]
    return [word for path in folders for word in ("-isystem", path)]


def host_flags(name: str) -> list[str]:
    """Return PyTorch's flags for the C++ files of a CUDA extension called `name`."""
    return [*_name_flags(name), *include_flags(), "-fPIC", f"-std={language_standard()}", "-fdiagnostics-color=never"]


def cuda_flags(name: str, target: str, flags: list[str]) -> list[str]:
    """Return PyTorch's flags for CUDA files, with the submission's `flags`, for the architecture `target`."""
    standard = [] if any(word.startswith("-std=") for word in flags) else [f"-std={language_standard()}"]
    return [*_name_flags(name), *include_flags(), *device_flags(target), *flags, *standard]


def device_flags(target: str) -> list[str]:
    """Return the flags that affect machine code, without the submission's own."""
    gencode = f"-gencode=arch=compute_{target},code=sm_{target}"
    return [*PYTORCH_NVCC_FLAGS, gencode, "--compiler-options", "-fPIC", "-ccbin", host_compiler.cxx().path]


def link_flags() -> list[str]:
    """Return PyTorch's link flags of a CUDA extension."""
    folder = cuda_home() / ("lib64" if (cuda_home() / "lib64").exists() else "lib")
    libraries = ["-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda", "-ltorch", "-ltorch_python"]
    return [f"-L{host_compiler.library_path()}", *libraries, f"-L{folder}", "-lcudart"]


def both_front_ends() -> str:
    """Return the beginning of a ninja command that compiles one file by the script `FRONT_ENDS`."""
    return f"/bin/sh {FRONT_ENDS_NAME} $out {nvcc().path}"


def ninja_text(
    name: str, units: list[CompileUnit], cflags: list[str], cuda: list[str], ldflags: list[str], command: str
) -> str:
    """Return the build file for one library, `NAME.so`, from C++ and CUDA files in the same folder.

    `command` is the beginning of the commands for CUDA files: nvcc's path, or `both_front_ends()`.
    """
    objects = [f"{index}_{unit.source}.o" for index, unit in enumerate(units)]
    compiler, rules = host_compiler.cxx().path, {False: "compile", True: "cuda_compile"}
    lines = [
        "ninja_required_version = 1.3",
        f"cflags = {joined([*host_flags(name), *cflags])}",
        f"cuda_flags = {joined(cuda)}",
        f"ldflags = {joined(['-shared', *ldflags, *link_flags()])}",
        f"rule compile\n  command = {compiler} $cflags -c $in -o $out\n  description = compile $in",
        f"rule cuda_compile\n  command = {command} $cuda_flags -c $in -o $out\n  description = compile $in",
        f"rule link\n  command = {compiler} $in $ldflags -o $out\n  description = link $out",
        *(f"build {target}: {rules[unit.cuda]} {unit.source}" for target, unit in zip(objects, units, strict=True)),
        f"build {name}.so: link {' '.join(objects)}",
        f"default {name}.so",
        "",
    ]
    return "\n".join(lines)


def _name_flags(name: str) -> list[str]:
    return [f"-DTORCH_EXTENSION_NAME={name}", "-DTORCH_API_INCLUDE_EXTENSION_H"]


@functools.cache
def cuobjdump() -> InstalledTool | None:
    """Find cuobjdump beside nvcc, and its version; None for a toolkit without disassembler."""
    try:
        path = cuda_home() / "bin" / "cuobjdump"
    except ToolchainMissing:
        return None
    if not os.access(path, os.X_OK):
        return None
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60)
    lines = answer.stdout.strip().splitlines()
    return InstalledTool(str(path), lines[-1].strip()) if answer.returncode == 0 and lines else None
