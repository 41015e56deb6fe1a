"""Sources and compile flags of the emulator's runtime library."""

import functools
import platform
import subprocess
from pathlib import Path

from evaluator.toolchain import host_compiler

_FOLDER = Path(__file__).parent
INCLUDE = _FOLDER / "include"


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
