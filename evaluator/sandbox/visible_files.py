"""Files visible to a runner: the system, Python with torch, its private folder; never Warpgrade's own sources."""

import contextlib
import functools
import os
import shutil
import site
import stat
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from evaluator.errors import UsageError


def library_folders() -> tuple[str, ...]:
    """Return the folders in this process's search order; none if Python's own folders hold every package."""
    own_folders = [*site.getsitepackages(), *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))]
    try:
        current = os.getcwd()  # noqa: PTH109 - compared as text
    except OSError:  # Removed: nothing exists below.
        current = "/"
    return _chosen(tuple(sys.path), tuple(own_folders), current)


@functools.cache
def _chosen(path: Sequence[str], own_folders: Sequence[str], current: str) -> tuple[str, ...]:
    covered = {os.path.realpath(folder) for folder in own_folders}
    folders = []
    for entry in path:
        folder = os.path.abspath(os.path.join(current, entry))  # noqa: PTH100, PTH118 - keeps how it is spelled
        real = os.path.realpath(folder)
        if entry and real not in covered and _holds_packages(Path(folder)):
            folders.append(folder)
            covered.add(real)
    return tuple(folders)


def _holds_packages(folder: Path) -> bool:
    try:
        if (folder / "torch" / "__init__.py").is_file():
            return True
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(".dist-info") and entry.is_dir() for entry in entries)
    except OSError:
        return False


_SYSTEM = (
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/alternatives",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/sys/devices/system",  # torch's cpuinfo reads processor data here
)
_PREFIXES = ("/usr", "/usr/local")
_OF_PREFIX = (
    *("bin", "sbin", "include", "lib", "lib32", "lib64", "libexec", "share", "ssl", "pyvenv.cfg"),
    *("nvvm", "targets", "compiler_compat", "*-linux-gnu"),  # of CUDA, and of compilers in a Conda environment
)
"""Programs and libraries below an installation prefix. Anything else there may be a file of the judge's user.

The runner of an ordinary user has the number of that user, so that mode 0600 protects nothing in a readable folder.
"""
_OF_USR_LOCAL = ("cuda*", "nvidia")
_COMPILERS = ("c++", "g++", "nvcc")
PLAIN_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_OWN_PACKAGES = ("evaluator", "warpgrade")
"""Packages of Warpgrade in site-packages, beside packages available to submissions."""


class FileView(msgspec.Struct, frozen=True, kw_only=True):
    """The files visible to a runner. Where listed paths are nested, the innermost path decides.

    `private` is writable. With `host_private` it is a folder of the host, kept afterwards (a tool's output). Otherwise
    the folder lies in memory and ends with the runner.
    """

    private: str
    host_private: bool
    readable: tuple[str, ...]
    hidden: tuple[str, ...]
    devices: tuple[str, ...]
    scratch_bytes: int


def readable_paths(extra: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return the paths that every runner may read, plus `extra`: each path as spelled and as resolved."""
    installed = _installed((*_PREFIXES, sys.base_prefix, sys.base_exec_prefix, sys.prefix))
    return tuple(dict.fromkeys((*installed, *_existing([*library_folders(), *map(str, extra)]))))


@functools.cache
def _installed(prefixes: Sequence[str]) -> tuple[str, ...]:
    """Return folders of programs and libraries, of the system and of `prefixes`. The search takes milliseconds."""
    folders = (Path(prefix) for prefix in dict.fromkeys((*prefixes, *_compiler_prefixes())))
    installed = (str(path) for folder in folders for path in _below(folder, _OF_PREFIX))
    return _existing([*_SYSTEM, *installed, *map(str, _below(Path("/usr/local"), _OF_USR_LOCAL)), *_linker_folders()])


def _existing(paths: Sequence[str]) -> tuple[str, ...]:
    existing = [path for path in map(os.path.abspath, paths) if Path(path).exists()]
    return tuple(spelling for path in existing for spelling in (path, os.path.realpath(path)))


def _below(folder: Path, patterns: Sequence[str]) -> Iterator[Path]:
    for pattern in patterns:
        yield from folder.glob(pattern)


def _compiler_prefixes() -> Iterator[str]:
    """Yield the prefixes of compilers in /opt (Red Hat's toolsets)."""
    for compiler in filter(None, map(shutil.which, (*_COMPILERS, os.environ.get("CXX") or "c++"))):
        path = os.path.realpath(compiler)
        if path.startswith("/opt/"):
            yield str(Path(path).parents[1])


def _linker_folders() -> Iterator[str]:
    """Yield the administrator's folders of libraries, from the dynamic linker's configuration."""
    for file in (Path("/etc/ld.so.conf"), *Path("/etc/ld.so.conf.d").glob("*.conf")):
        with contextlib.suppress(OSError):
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            yield from (line.strip() for line in lines if line.startswith("/"))


def refuse_readable(path: Path, name: str) -> None:
    """Raise UsageError if runners can read the path through their file view; the message calls the path `name`."""
    real = path.resolve()
    deciding = _decider(str(real), readable_paths(), hidden := hidden_paths())
    if deciding is not None and deciding not in hidden:
        raise UsageError(
            f"{name} {path} is in a folder that submissions can read: {deciding}",
            hint="move it to a folder of your own, such as one in your home",
        )


def source_root() -> Path:
    """Return the folder that contains the package `evaluator`: a checkout or site-packages."""
    return Path(__file__).resolve().parents[2]


def in_checkout() -> bool:
    """Return whether Warpgrade runs from a checkout, which is then hidden as a whole."""
    return (source_root() / "pyproject.toml").exists()


def hidden_paths() -> tuple[str, ...]:
    """Return the paths that no runner may read, even inside a readable folder."""
    root = source_root()
    if in_checkout():
        return (str(root),)
    return tuple(str(root / package) for package in _OWN_PACKAGES if (root / package).exists())


def unreachable_for_others() -> str | None:
    """Return a folder of Python or its libraries that other users cannot reach (in root's home), or None."""
    for path in dict.fromkeys(map(os.path.realpath, (sys.base_prefix, sys.prefix, *library_folders()))):
        if any(not folder.stat().st_mode & stat.S_IXOTH for folder in (Path(path), *Path(path).parents)):
            return path
    return None


def granted(readable: Sequence[str], hidden: Sequence[str]) -> Iterator[Path]:
    """Yield the readable paths as an allow list, for Landlock: folders around a hidden path are split into children."""
    for path in readable:
        if _decider(path, readable, hidden) in readable:
            yield from _without(Path(path), readable, hidden)


def _without(path: Path, readable: Sequence[str], hidden: Sequence[str]) -> Iterator[Path]:
    if str(path) in hidden:
        return
    if not any(Path(hidden_path).is_relative_to(path) for hidden_path in hidden):
        yield path
        return
    for child in path.iterdir():
        if not child.is_symlink():
            yield from _without(child, readable, hidden)


def _decider(path: str, readable: Sequence[str], hidden: Sequence[str]) -> str | None:
    around = [folder for folder in (*readable, *hidden) if Path(path).is_relative_to(folder)]
    return max(around, key=len, default=None)
