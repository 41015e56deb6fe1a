"""C++ compiler of this machine, and the command lines of PyTorch's extension builder."""

import functools
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

from evaluator.errors import ToolchainMissing


class InstalledTool(NamedTuple):
    """Compiler: path, and self-reported version."""

    path: str
    version: str


@functools.cache
def cxx() -> InstalledTool:
    """Find the C++ compiler: `$CXX`, else g++, else c++. Raises ToolchainMissing."""
    candidates = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++"]
    for name in candidates:
        if (path := shutil.which(name)) is not None:
            answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60)
            if answer.returncode == 0 and answer.stdout:
                return InstalledTool(path, answer.stdout.splitlines()[0].strip())
    raise ToolchainMissing(
        f"no C++ compiler: {' and '.join(candidates)} do not run", hint="install g++ (on Debian: apt install g++)"
    )


def ninja() -> str:
    """Find ninja, installed with its Python package. Raises ToolchainMissing."""
    import ninja as package

    path = shutil.which("ninja", path=package.BIN_DIR) or shutil.which("ninja")
    if path is None:
        raise ToolchainMissing("ninja not found", hint="pip install ninja")
    return path


def compile_flags(name: str) -> list[str]:
    """Return PyTorch's compile flags for an extension called `name`."""
    includes = [*include_paths(), sysconfig.get_paths()["include"]]
    return [
        f"-DTORCH_EXTENSION_NAME={name}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *(f"-isystem{path}" for path in includes),
        "-fPIC",
        f"-std={language_standard()}",
        "-fdiagnostics-color=never",
    ]


def link_flags() -> list[str]:
    """Return PyTorch's link flags for a C++ extension."""
    return ["-shared", f"-L{library_path()}", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]


def native_flags() -> list[str]:
    """Return the flags for Warpgrade's native code, which links to torch's core library but not to Python."""
    includes = [f"-isystem{path}" for path in include_paths()]
    return [f"-std={language_standard()}", "-fPIC", "-shared", *includes, f"-L{library_path()}", "-lc10"]


def fingerprint() -> dict[str, str]:
    """Return everything outside the submission that determines a library's contents."""
    return {
        "compiler": cxx().version,
        "torch": torch_version(),
        "python": sys.implementation.cache_tag,
        "machine": platform.machine(),
    }


@functools.cache
def torch_version() -> str:
    """Return the version of the installed PyTorch, read once: reading takes some 4 ms."""
    return importlib.metadata.version("torch")


def ninja_text(name: str, files: list[str], cflags: list[str], ldflags: list[str]) -> str:
    """Return the build file for one library, `NAME.so`, from C++ files in the same folder."""
    objects = [f"{index}_{file}.o" for index, file in enumerate(files)]
    lines = [
        "ninja_required_version = 1.3",
        f"cflags = {joined([*compile_flags(name), *cflags])}",
        f"ldflags = {joined([*ldflags, *link_flags()])}",
        f"rule compile\n  command = {cxx().path} $cflags -c $in -o $out\n  description = compile $in",
        f"rule link\n  command = {cxx().path} $in $ldflags -o $out\n  description = link $out",
        *(f"build {target}: compile {file}" for target, file in zip(objects, files, strict=True)),
        f"build {name}.so: link {' '.join(objects)}",
        f"default {name}.so",
        "",
    ]
    return "\n".join(lines)


def joined(flags: list[str]) -> str:
    """Quote flags for the shell, and escape `$` for ninja."""
    return " ".join(shlex.quote(flag) for flag in flags).replace("$", "$$")


@functools.cache
def language_standard() -> str:
    """Return the C++ standard of the installed PyTorch's extension builds; PyTorch moved from C++17 to C++20."""
    own_builder = _torch_folder() / "utils" / "cpp_extension.py"
    return "c++20" if "-std=c++20" in own_builder.read_text(encoding="utf-8") else "c++17"


def include_paths() -> list[str]:
    """Return the folders of PyTorch's headers, in the order of `torch.utils.cpp_extension.include_paths()`."""
    include = _torch_folder() / "include"
    return [str(include), str(include / "torch" / "csrc" / "api" / "include")]


def library_path() -> str:
    """Return the folder of PyTorch's libraries."""
    return str(_torch_folder() / "lib")


@functools.cache
def _torch_folder() -> Path:
    """Find PyTorch without importing torch: the import takes longer than many builds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ToolchainMissing("PyTorch is not installed", hint="pip install torch")
    return Path(spec.origin).parent
