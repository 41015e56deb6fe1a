"""Reading of files named by a user or found in a folder: the only place where foreign files are opened.

A path *named* by the user may be a link or a pipe: `<(…)` of a shell, /dev/stdin. A file *found* in a folder must be a
regular file, and no part of its path below the folder may be a link. The check uses the open descriptor, so a later
replacement has no effect. Opening never blocks, and reading has a limit.

All functions raise `OSError`; its `strerror` describes the file.
"""

import contextlib
import errno
import os
import select
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

SILENCE_S = 10.0
"""Time limit for a named pipe, which may have no writer. An anonymous pipe has or had one."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_CHUNK = 1 << 16


class NotRegular(OSError):
    """A file other than a regular file, found in a folder."""


def kind(mode: int) -> str:
    """Return the kind of a file in words.

    >>> kind(stat.S_IFLNK), kind(stat.S_IFREG)
    ('a symbolic link', 'a file')
    """
    match stat.S_IFMT(mode):
        case stat.S_IFREG:
            return "a file"
        case stat.S_IFDIR:
            return "a folder"
        case stat.S_IFLNK:
            return "a symbolic link"
        case stat.S_IFIFO:
            return "a named pipe"
        case stat.S_IFSOCK:
            return "a socket"
        case _:
            return "a device"


def read_found(folder: Path, place: str, at_most: int) -> bytes:
    """Read the file at `place` below `folder`: at most `at_most` bytes, plus one more if the file is longer.

    Raises:
        NotRegular: the file or a folder on the path is a link or of a wrong kind.
        OSError: the file cannot be opened or read.
    """
    with contextlib.ExitStack() as opened:
        descriptor = _opened_found(folder, place, opened)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(min(os.fstat(descriptor).st_size, at_most) + 1)[: at_most + 1]


def read_named(path: Path, at_most: int, silence_s: float = SILENCE_S) -> bytes:
    """Read a file named by the user, with the limit of `read_found`. Links, pipes and terminals are allowed.

    Raises:
        OSError: the file cannot be opened or read; it is a folder, a socket or a disk; a named pipe stays silent.
    """
    with open_named(path, silence_s) as file:
        parts, left = [], at_most + 1
        while left > 0 and (part := file.read(min(left, _CHUNK))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def read_named_regular(path: Path, at_most: int) -> bytes:
    """Read a regular file named by the user, with the limit of `read_found`; links are followed.

    Raises:
        NotRegular: the path leads to a file of another kind.
        OSError: the file cannot be opened or read.
    """
    descriptor = os.open(path, _FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        _refuse_irregular(descriptor, path)
        # Limit the read to the file's size: allocating the largest allowed buffer takes longer than reading most files.
        return file.read(min(os.fstat(descriptor).st_size, at_most) + 1)[: at_most + 1]


def open_named(path: Path, silence_s: float = SILENCE_S) -> BinaryIO:
    """Open a file named by the user for reading. Raises the errors of `read_named` that precede the first byte.

    The reader of a pipe waits as long as a writer lives; a named pipe without a writer is abandoned after `silence_s`.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        _refuse_unreadable(descriptor, path)
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode) and not _is_anonymous(descriptor):
            _await_writer(descriptor, path, silence_s)
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def open_to_append(folder: Path, name: str) -> BinaryIO:
    """Open a file of Warpgrade in `folder` for appending. Raises OSError if the path is a link or a pipe."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    path = folder / name
    with _explained(path):
        descriptor = os.open(path, flags, 0o666)
    try:
        _refuse_irregular(descriptor, path)
        return os.fdopen(descriptor, "ab", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def _opened_found(folder: Path, place: str, opened: contextlib.ExitStack) -> int:
    """Open a path below a folder part by part, so that no part is a link at the time of its opening."""
    *folders, name = place.split("/")
    if any(part in {"", ".", ".."} for part in (*folders, name)):
        raise NotRegular(errno.EINVAL, "the path leaves the folder", place)
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    opened.callback(os.close, here)
    path = folder
    for part in folders:
        path = path / part
        with _explained(path):
            here = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        opened.callback(os.close, here)
    path = path / name
    # Opening a device may have side effects, so check the path first, then the descriptor again.
    with _explained(path):
        _refuse_mode(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode, path)
        descriptor = os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=here)
    opened.callback(os.close, descriptor)
    _refuse_irregular(descriptor, path)
    return descriptor


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Name the kind of a refused file: the system reports ELOOP or ENOTDIR for a link, ENXIO for a pipe."""
    try:
        yield
    except NotRegular:
        raise
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}:
            mode = _mode_of(path)
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise NotRegular(error.errno, f"{path} is {kind(mode)}", str(path)) from error
        raise


def _mode_of(path: Path) -> int:
    """Return the current mode of a path, for a message; that of a regular file if unknown."""
    try:
        return path.lstat().st_mode
    except OSError:
        return stat.S_IFREG


def _refuse_unreadable(descriptor: int, path: Path) -> None:
    """Raise OSError for files that cannot be read from beginning to end: a folder, a disk."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        raise NotRegular(errno.EINVAL, f"it is {kind(mode)}", str(path))


def _refuse_irregular(descriptor: int, path: Path) -> None:
    _refuse_mode(os.fstat(descriptor).st_mode, path)


def _refuse_mode(mode: int, path: Path) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegular(errno.EINVAL, f"it is {kind(mode)}", str(path))


def _is_anonymous(pipe: int) -> bool:
    """Return whether a pipe has no name: its creator holds the other end, or has closed it."""
    try:
        return str(Path(f"/proc/self/fd/{pipe}").readlink()).startswith("pipe:")
    except OSError:
        return False


def _await_writer(pipe: int, path: Path, silence_s: float) -> None:
    """Wait for the first byte, or for the end of a writer. Raises TimeoutError after silence without either."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    if not poll.poll(silence_s * 1e3):
        raise TimeoutError(errno.ETIMEDOUT, f"nothing was written into this pipe for {silence_s:g} s", str(path))
