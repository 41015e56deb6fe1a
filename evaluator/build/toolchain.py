"""The compilers of this machine, and the command lines that PyTorch's own extension builder would give them."""

import functools
import importlib.metadata
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


class Toolchain(NamedTuple):
    """A C++ compiler: its path, and its version as it says it."""

    path: str
    version: str


@functools.cache
def cxx() -> Toolchain:
    """Find the C++ compiler: `$CXX`, else g++, else c++. Raises ToolchainMissing."""
    wanted = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++"]
    for name in wanted:
        if (path := shutil.which(name)) is not None:
            answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60)
            if answer.returncode == 0 and answer.stdout:
                return Toolchain(path, answer.stdout.splitlines()[0].strip())
    raise ToolchainMissing(
        f"no C++ compiler: {' and '.join(wanted)} cannot be run", hint="install g++ (on Debian: apt install g++)"
    )


def ninja() -> str:
    """Find ninja, which comes with its Python package. Raises ToolchainMissing."""
    import ninja as package

    path = shutil.which("ninja", path=package.BIN_DIR) or shutil.which("ninja")
    if path is None:
        raise ToolchainMissing("ninja cannot be found", hint="pip install ninja")
    return path


def compile_flags(name: str) -> list[str]:
    """Give the flags that PyTorch compiles an extension called `name` with."""
    from torch.utils import cpp_extension

    includes = [*cpp_extension.include_paths(), sysconfig.get_paths()["include"]]
    return [
        f"-DTORCH_EXTENSION_NAME={name}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        *(f"-isystem{path}" for path in includes),
        "-fPIC",
        f"-std={language_standard()}",
        "-fdiagnostics-color=never",
    ]


def link_flags() -> list[str]:
    """Give the flags that PyTorch links a C++ extension with."""
    from torch.utils import cpp_extension

    folders = [f"-L{path}" for path in cpp_extension.library_paths()]
    return ["-shared", *folders, "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]


def native_flags() -> list[str]:
    """Give the flags for our own native code, which needs torch's core library and no Python."""
    from torch.utils import cpp_extension

    includes = [f"-isystem{path}" for path in cpp_extension.include_paths()]
    folders = [f"-L{path}" for path in cpp_extension.library_paths()]
    return [f"-std={language_standard()}", "-fPIC", "-shared", *includes, *folders, "-lc10"]


def fingerprint() -> dict[str, str]:
    """Name everything outside of a submission that decides what its library looks like."""
    return {
        "compiler": cxx().version,
        "torch": importlib.metadata.version("torch"),
        "python": sys.implementation.cache_tag,
        "machine": platform.machine(),
    }


def ninja_text(name: str, files: list[str], cflags: list[str], ldflags: list[str]) -> str:
    """Write the build file for one library, `NAME.so`, from C++ files in the same folder."""
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
    """Quote flags for the shell, and `$` for ninja."""
    return " ".join(shlex.quote(flag) for flag in flags).replace("$", "$$")


@functools.cache
def language_standard() -> str:
    """Give the C++ standard that the installed PyTorch builds extensions with; it moved from 17 to 20."""
    from torch.utils import cpp_extension

    return "c++20" if "-std=c++20" in Path(cpp_extension.__file__).read_text(encoding="utf-8") else "c++17"
