"""A private file view: a new root in memory, with read-only bind mounts of everything a runner may see.

Runs in a fresh mount namespace, in the trusted process that will start the runner. The view is built from the old root,
which is then unmounted: no path leads back to the host's files.
"""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from evaluator.sandbox.kernel import syscalls
from evaluator.sandbox.visible_files import PLAIN_DEVICES, FileView

_OLD = "/.old-root"
_SCRATCH = "/.scratch"
_INODES_AT_MOST = 65_536
_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV
_READ_ONLY = syscalls.MOUNT_ATTR_RDONLY | syscalls.MOUNT_ATTR_NOSUID


class _Piece(NamedTuple):
    """A path of the new root, with the function that creates the path."""

    path: str
    place: Callable[[str], None]


def build(view: FileView, owner: tuple[int, int]) -> int | None:
    """Turn this mount namespace into `view`; in-memory files belong to `owner` (user and group).

    Returns:
        A descriptor that becomes readable when the in-memory files are freed; None if the user has no inotify instance
        left.

    Raises:
        OSError: the machine does not allow the view.
    """
    os.umask(0o022)
    pieces = sorted(_pieces(view), key=lambda piece: piece.path.count("/"))
    syscalls.mount("none", "/", flags=syscalls.MS_REC | syscalls.MS_PRIVATE)
    _move_into_empty_root(view.private)
    scratch_end = _make_scratch(view.scratch_bytes, owner)
    for piece in pieces:
        piece.place(piece.path)
    _mount_proc()
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        Path("/dev", name).symlink_to(f"/proc/self/{target}")
    for leftover in (_SCRATCH, _OLD):
        syscalls.unmount(leftover, syscalls.MNT_DETACH)
        Path(leftover).rmdir()
    for folder in ("/", *(path for path in view.hidden if Path(path).is_dir() and os.path.ismount(path))):
        syscalls.mount_setattr(folder, _READ_ONLY, recursive=False)
    return scratch_end


def _pieces(view: FileView) -> Iterator[_Piece]:
    for path in view.readable:
        if Path(path).is_symlink():
            yield _Piece(path, _symlink_to(str(Path(path).readlink())))
        else:
            yield _Piece(path, _window_on(_OLD + os.path.realpath(path), _READ_ONLY))
    for path in view.hidden:
        yield _Piece(path, _hide)
    for path in (*PLAIN_DEVICES, *view.devices):
        yield _Piece(path, _window_on(_OLD + path))
    yield _Piece("/tmp", _window_on(f"{_SCRATCH}/tmp"))  # noqa: S108 - the new root's
    yield _Piece("/dev/shm", _window_on(f"{_SCRATCH}/shm"))  # noqa: S108 - the new root's
    if view.host_private:
        yield _Piece(view.private, _window_on(_OLD + view.private, syscalls.MOUNT_ATTR_NOSUID))
    else:
        yield _Piece(view.private, _window_on(f"{_SCRATCH}/private"))


def _move_into_empty_root(mount_point: str) -> None:
    """Make an empty in-memory folder the root. `mount_point` is any folder; nothing stays mounted on it."""
    syscalls.mount("tmpfs", mount_point, "tmpfs", _FLAGS, "size=1m,mode=755")
    Path(mount_point + _OLD).mkdir()
    syscalls.pivot_root(mount_point, mount_point + _OLD)
    os.chdir("/")


def _make_scratch(size_bytes: int, owner: tuple[int, int]) -> int | None:
    """Mount the tmpfs with all files writable by the runner: a single mount, for a single quota.

    Return a descriptor that becomes readable when the tmpfs is freed, or None.
    """
    Path(_SCRATCH).mkdir()
    options = f"size={size_bytes},nr_inodes={_INODES_AT_MOST},mode=755"
    syscalls.mount("tmpfs", _SCRATCH, "tmpfs", _FLAGS, options)
    for name, mode in (("tmp", 0o1777), ("shm", 0o1777), ("private", 0o700)):
        folder = Path(_SCRATCH, name)
        folder.mkdir()
        folder.chmod(mode)
    os.chown(f"{_SCRATCH}/private", *owner)
    try:
        return syscalls.watch_unmount(_SCRATCH)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOSPC):
            raise
        return None


def _mount_proc() -> None:
    """Mount the /proc of this process namespace. A runner needs it: its libraries are memory, opened by /proc/self/fd.

    Raises PermissionError in a container that hides parts of its own /proc.
    """
    Path("/proc").mkdir()
    try:
        syscalls.mount("proc", "/proc", "proc", _FLAGS | syscalls.MS_NOEXEC)
    except PermissionError as error:
        raise PermissionError("the kernel refuses a fresh /proc, because parts of this one are hidden") from error


def _make_mount_point(path: str, *, folder: bool) -> None:
    if Path(path).exists():
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    if folder:
        Path(path).mkdir()
    else:
        Path(path).touch()


def _window_on(source: str, attributes: int = 0) -> Callable[[str], None]:
    """Return a function that shows `source` at a path; `attributes` restrict the mount and all mounts below."""

    def place(path: str) -> None:
        _make_mount_point(path, folder=Path(source).is_dir())
        # Recursive, because an ordinary user may not expose folders below another mount.
        syscalls.mount(source, path, flags=syscalls.MS_BIND | syscalls.MS_REC)
        if attributes:
            syscalls.mount_setattr(path, attributes, recursive=True)

    return place


def _symlink_to(target: str) -> Callable[[str], None]:
    def place(path: str) -> None:
        if os.path.lexists(path):
            return
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).symlink_to(target)

    return place


def _hide(path: str) -> None:
    """Cover Warpgrade's own files with an empty mount, if they lie inside a readable folder."""
    if Path(path).is_dir():
        syscalls.mount("tmpfs", path, "tmpfs", _FLAGS, "size=1m,mode=755")
    elif Path(path).exists():
        syscalls.mount(f"{_OLD}/dev/null", path, flags=syscalls.MS_BIND)
