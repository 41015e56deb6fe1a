"""Which files a runner may see: the system, Python with torch, its private folder; never Warpgrade's own."""

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from evaluator.isolation.libraries import library_folders

_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/etc/alternatives",
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/sys/devices/system",  # torch's cpuinfo reads the processors from here
)
PLAIN_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
PROCESSLESS_PROC = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems")
"""What of /proc tells of the machine and not of its processes."""
_OWN_PACKAGES = ("evaluator", "warpgrade")
"""What an installation puts into site-packages, beside the packages that a submission may import."""


class FileView(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one runner. Of two paths that hold each other, the deeper one decides.

    `private` may be written. `host_private` says that it is the host's own folder (a tool's output is wanted
    afterwards) and not one in memory that ends with the runner.
    """

    private: str
    host_private: bool
    readable: tuple[str, ...]
    hidden: tuple[str, ...]
    devices: tuple[str, ...]
    scratch_bytes: int


def readable_paths(extra: Sequence[Path] = ()) -> tuple[str, ...]:
    """List what every runner may read, with `extra`: each path as it is spelled and as it resolves."""
    wanted = [*_SYSTEM, sys.base_prefix, sys.base_exec_prefix, sys.prefix, *library_folders(), *map(str, extra)]
    there = [path for path in map(os.path.abspath, wanted) if Path(path).exists()]
    return tuple(dict.fromkeys(spelling for path in there for spelling in (path, os.path.realpath(path))))


def source_root() -> Path:
    """Give the folder that holds the package `evaluator`: a checkout, or a site-packages."""
    return Path(__file__).resolve().parents[2]


def in_checkout() -> bool:
    """Say whether this is a checkout; the whole of it is hidden then."""
    return (source_root() / "pyproject.toml").exists()


def hidden_paths() -> tuple[str, ...]:
    """List what no runner may read, even where a folder around it is readable."""
    root = source_root()
    if in_checkout():
        return (str(root),)
    return tuple(str(root / package) for package in _OWN_PACKAGES if (root / package).exists())


def unreachable_for_others() -> str | None:
    """Name this Python's folder, or one of its libraries', that another user could not reach (in a home of root)."""
    for place in dict.fromkeys(map(os.path.realpath, (sys.base_prefix, sys.prefix, *library_folders()))):
        if any(not folder.stat().st_mode & stat.S_IXOTH for folder in (Path(place), *Path(place).parents)):
            return place
    return None


def granted(readable: Sequence[str], hidden: Sequence[str]) -> Iterator[Path]:
    """Say the same with paths to allow alone, as Landlock needs it: folders around a hidden path are taken apart."""
    for path in readable:
        if _decider(path, readable, hidden) in readable:
            yield from _without(Path(path), readable, hidden)


def _without(path: Path, readable: Sequence[str], hidden: Sequence[str]) -> Iterator[Path]:
    if str(path) in hidden:
        return
    if not any(Path(other).is_relative_to(path) for other in hidden):
        yield path
        return
    for child in path.iterdir():
        if not child.is_symlink():
            yield from _without(child, readable, hidden)


def _decider(path: str, readable: Sequence[str], hidden: Sequence[str]) -> str | None:
    around = [other for other in (*readable, *hidden) if Path(path).is_relative_to(other)]
    return max(around, key=len, default=None)
