"""Shared files of split builds, built once per PyTorch and compiler: a precompiled header and the binding support.

Building takes a minute of one core and half a gigabyte of disk, so the files are built ahead or in the background. A
single grade does not wait. In a batch, all workers that build wait: builds would take ten times as long otherwise. The
compiler's sandbox reads the folder, and only the judge's side writes to it.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.cache.eviction import DRAFT, cache_limit_bytes, hold, make_room
from evaluator.compile.builder import RunTool, work_folder
from evaluator.errors import WarpgradeError
from evaluator.sandbox import Limits, ToolResult
from evaluator.toolchain import host_compiler, nvcc
from evaluator.toolchain.light_headers import BINDING_HEADER, BINDING_SUPPORT

_SOURCES = (Path(__file__).parent / "host_half" / "warpgrade_host.h", BINDING_HEADER, BINDING_SUPPORT)
_HEADER = "warpgrade_host.h"
_SUPPORT = "support.o"
_COMPLETE = "complete"
_FAILURE = ".failed-"
_TRIED_AGAIN_S = 24 * 3600.0
_TIMEOUT_S = 600.0
_MOST_WAIT_S, _LOOK_S = 120.0, 0.1
_SAID = 300
_LIMITS = Limits(memory_bytes=12 << 30, file_bytes=2 << 30, processes=256, kept_output_bytes=32 << 10)


class Precompiled(NamedTuple):
    """Files of one entry."""

    header: Path
    support: Path


def precompiled_folder(cache: Path) -> Path:
    """Return the folder below the cache that sandboxes must be able to read."""
    return cache / "prepared"


def precompiled(cache: Path) -> Precompiled | None:
    """Return the files for this PyTorch and these compilers; None before the first build.

    The files stay locked until this process ends.
    """
    folder = precompiled_folder(cache) / _key()
    if not (folder / _COMPLETE).exists() or not hold(folder):
        return None
    return Precompiled(folder / _HEADER, folder / _SUPPORT)


def worth_trying(cache: Path) -> bool:
    """Return whether to build in the background: files missing, and no compile failure within the last day."""
    if precompiled(cache) is not None:
        return False
    try:
        failed_s = _failure_file(cache).stat().st_mtime
    except OSError:
        return True
    return time.time() - failed_s >= _TRIED_AGAIN_S


def make_or_await(run_tool: RunTool, cache: Path) -> None:
    """Make missing files, or wait while another process makes them, two minutes at most; once in a process.

    Without the files, builds take the next step.
    """
    if cache in _TRIED or not worth_trying(cache):
        return
    _TRIED.add(cache)
    with contextlib.suppress(WarpgradeError, OSError):
        precompile(run_tool, cache)
    deadline = time.monotonic() + _MOST_WAIT_S
    while precompiled(cache) is None and _is_being_made(cache) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


_TRIED: set[Path] = set()
"""Caches for which this process has made or awaited the files: a compiler that is killed each time must not run again
for each submission."""


def _is_being_made(cache: Path) -> bool:
    try:
        with (precompiled_folder(cache) / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def why_not_precompiled(cache: Path) -> str:
    """Return the reason, in a single line, why `prepare` returned None."""
    try:
        return _failure_file(cache).read_text(encoding="utf-8")
    except OSError:
        return "another process is making it, or there is no room"


def header_flags() -> list[str]:
    """Return the flags of the precompiled header. All units that use the header must be compiled with these flags."""
    standard = f"-std={host_compiler.language_standard()}"
    return [
        *nvcc.include_flags(),
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        "-fPIC",
        standard,
        "-fdiagnostics-color=never",
        "-w",
    ]


def precompile(run_tool: RunTool, cache: Path) -> Precompiled | None:
    """Build missing files; None after a failure, or if another process is building.

    Raises ToolchainMissing without g++ or nvcc, JudgeFailed without space for the compiler's files.
    """
    if (existing := precompiled(cache)) is not None:
        return existing
    folder = precompiled_folder(cache)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _make(run_tool, cache)
    except OSError:  # Another process holds the lock, or the disk is full: builds use the light step.
        return None
    return precompiled(cache)


def _make(run_tool: RunTool, cache: Path) -> None:
    folder = precompiled_folder(cache)
    if (folder / _key() / _COMPLETE).exists():
        return
    with work_folder() as work:
        for source in _SOURCES:
            (work / source.name).write_bytes(source.read_bytes())
        (work / "build.ninja").write_text(_ninja_text(), encoding="utf-8")
        result = run_tool([host_compiler.ninja(), "-f", "build.ninja"], work=work, timeout_s=_TIMEOUT_S, limits=_LIMITS)
        # Unreadable or unstorable files are built again later.
        with contextlib.suppress(OSError):
            if result.ok:
                _keep(work, folder)
    if result.ok:
        _failure_file(cache).unlink(missing_ok=True)
    elif result.signal is None:  # A killed compiler proves nothing.
        _failure_file(cache).write_text(_complaint(result), encoding="utf-8")
    if (built := precompiled(cache)) is not None:
        make_room(cache, cache_limit_bytes(), built.header.with_name(f"{_HEADER}.gch").stat().st_size)


def _failure_file(cache: Path) -> Path:
    return precompiled_folder(cache) / f"{_FAILURE}{_key()}"


def _complaint(result: ToolResult) -> str:
    """Return the compiler's first error, else the last line."""
    if result.timed_out:
        return f"the compiler was stopped after {_TIMEOUT_S:g} s"
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    return (errors[:1] or lines[-1:] or [f"the compiler ended with {result.exit_code}"])[0][:_SAID]


def _keep(work: Path, folder: Path) -> None:
    """Create an entry from the built files, published by one rename."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=DRAFT, ignore_cleanup_errors=True) as temporary:
        draft = Path(temporary) / "entry"
        draft.mkdir()
        for name in (_HEADER, f"{_HEADER}.gch", "warpgrade_bind.h", _SUPPORT):
            _take(work / name, draft / name)
        (draft / _COMPLETE).touch()
        draft.chmod(0o755)
        draft.rename(folder / _key())


def _take(source_path: Path, target: Path) -> None:
    """Copy a file from the sandbox. Raises OSError for missing files and links."""
    descriptor = os.open(source_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as source, target.open("wb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)
    target.chmod(0o644)


def _ninja_text() -> str:
    compiler, flags = host_compiler.cxx().path, host_compiler.joined(header_flags())
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
    sources = [(path.name, path.read_text(encoding="utf-8")) for path in sorted(_SOURCES, key=lambda path: path.name)]
    inputs = [sources, sorted(nvcc.fingerprint().items()), header_flags()]
    return hashlib.sha256(msgspec.json.encode(inputs)).hexdigest()[:32]
