"""What split builds share, made once for each PyTorch and compiler: a precompiled header and the bindings' support.

It takes a minute of one core and half a gigabyte, so it is made ahead or beside a grade, never waited for. The folder
must be readable in the compiler's sandbox; only the judge's side writes there.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.build import nvcc, toolchain
from evaluator.build.builder import RunTool, work_folder
from evaluator.isolation import Limits

_SOURCES = Path(__file__).parent / "host_half"
_HEADER = "warpgrade_host.h"
_SUPPORT = "support.o"
_COMPLETE = "complete"
_KEPT = 2
"""So many entries stay: two environments may share a cache."""
_TIMEOUT_S = 600.0
_LIMITS = Limits(memory_bytes=12 << 30, file_bytes=2 << 30, processes=256, kept_output_bytes=32 << 10)


class Prepared(NamedTuple):
    """The files of one entry."""

    header: Path
    support: Path


def prepared_folder(cache: Path) -> Path:
    """Say which folder below the cache a sandbox must be able to read."""
    return cache / "prepared"


def prepared(cache: Path) -> Prepared | None:
    """Find what fits this PyTorch and these compilers; None where it was not made yet."""
    folder = prepared_folder(cache) / _key()
    return Prepared(folder / _HEADER, folder / _SUPPORT) if (folder / _COMPLETE).exists() else None


def header_flags() -> list[str]:
    """Give the flags of the precompiled header, which every unit that uses it must be compiled with."""
    standard = f"-std={toolchain.language_standard()}"
    return [
        *nvcc.include_flags(),
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        "-fPIC",
        standard,
        "-fdiagnostics-color=never",
        "-w",
    ]


def prepare(run_tool: RunTool, cache: Path) -> Prepared | None:
    """Make what is missing; None where that fails, or another process is at it.

    Raises ToolchainMissing without g++ or nvcc, JudgeFailed without room for the compiler's own files.
    """
    if (there := prepared(cache)) is not None:
        return there
    folder = prepared_folder(cache)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _make(run_tool, folder)
    except OSError:  # Another process holds the lock, or there is no room: the next builds take the light step.
        return None
    return prepared(cache)


def _make(run_tool: RunTool, folder: Path) -> None:
    if (folder / _key() / _COMPLETE).exists():
        return
    with work_folder() as work:
        for source in _SOURCES.iterdir():
            (work / source.name).write_bytes(source.read_bytes())
        (work / "build.ninja").write_text(_ninja_text(), encoding="utf-8")
        result = run_tool([toolchain.ninja(), "-f", "build.ninja"], work=work, timeout_s=_TIMEOUT_S, limits=_LIMITS)
        if not result.ok:
            return
        # What cannot be read is no fault of the work folder's, and what cannot be kept is made again.
        with contextlib.suppress(OSError):
            _keep(work, folder)
    _forget_old_ones(folder)


def _keep(work: Path, folder: Path) -> None:
    """Make an entry of what was made; it appears by one rename."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-", ignore_cleanup_errors=True) as made:
        draft = Path(made) / "entry"
        draft.mkdir()
        for name in (_HEADER, f"{_HEADER}.gch", "warpgrade_bind.h", _SUPPORT):
            _take(work / name, draft / name)
        (draft / _COMPLETE).touch()
        draft.chmod(0o755)
        draft.rename(folder / _key())


def _take(made: Path, target: Path) -> None:
    """Copy a file that the sandbox made. Raises OSError where it is none, or a link."""
    descriptor = os.open(made, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)
    target.chmod(0o644)


def _forget_old_ones(folder: Path) -> None:
    entries = [entry for entry in folder.iterdir() if (entry / _COMPLETE).exists()]
    for entry in sorted(entries, key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        shutil.rmtree(entry, ignore_errors=True)


def _ninja_text() -> str:
    compiler, flags = toolchain.cxx().path, toolchain.joined(header_flags())
    return "\n".join(
        [
            "ninja_required_version = 1.3",
            f"rule header\n  command = {compiler} {flags} -x c++-header $in -o $out\n  description = precompile $in",
            f"rule support\n  command = {compiler} {flags} -c $in -o $out\n  description = compile $in",
            f"build {_HEADER}.gch: header {_HEADER}",
            f"build {_SUPPORT}: support support.cpp",
            "",
        ]
    )


@functools.cache
def _key() -> str:
    sources = [(path.name, path.read_text(encoding="utf-8")) for path in sorted(_SOURCES.iterdir())]
    parts = [sources, sorted(nvcc.fingerprint().items()), header_flags()]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]
