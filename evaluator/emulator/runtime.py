"""The emulator's runtime library: its sources, and how to compile them."""

import functools
import platform
import subprocess
from pathlib import Path

from evaluator.build import toolchain

_FOLDER = Path(__file__).parent
INCLUDE = _FOLDER / "include"


def runtime_sources() -> list[Path]:
    """List the runtime's sources, its own headers among them: all lie in one folder."""
    return sorted(path for path in (_FOLDER / "src").iterdir() if path.suffix in {".cpp", ".h"})


def header_files() -> list[Path]:
    """List the headers that submissions and the runtime are compiled with."""
    return sorted(path for path in INCLUDE.rglob("*") if path.is_file())


def runtime_flags() -> list[str]:
    """Give the arguments, after the sources, that compile the runtime besides those of all native code."""
    own = ["-O2", "-DWARPGRADE_EMU_RUNTIME", f"-isystem{INCLUDE}", "-fvisibility=hidden", "-pthread"]
    return [*own, *_thread_local_flags(), *_line_table_flags()]


def _thread_local_flags() -> list[str]:
    # Descriptors cost a few instructions where the default is a call; arm64 has them without asking.
    return ["-mtls-dialect=gnu2"] if platform.machine() in {"x86_64", "AMD64"} else []


def _line_table_flags() -> list[str]:
    """Give what finds the line of a fault, where the compiler has its own reader of line tables (g++ on Debian)."""
    return ["-DWARPGRADE_EMU_BACKTRACE", "-lbacktrace"] if compiler_has("libbacktrace.a") else []


@functools.cache
def compiler_has(library: str) -> bool:
    """Say whether the compiler comes with a library of this file name."""
    argv = [toolchain.cxx().path, f"-print-file-name={library}"]
    answer = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    # A compiler that has no such file answers with the name alone.
    return Path(answer.stdout.strip()).is_absolute()
