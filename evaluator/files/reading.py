"""Open what a user named, and what was found in a folder: the one place where files of others are opened.

What a user *names* may be a link, and a pipe: `<(…)` of a shell, /dev/stdin. What is *found* in a folder is read only
where it is a regular file, and no part of its path below that folder is a link. Whether it is one is asked of the open
descriptor, so nothing can be put in its place in between. Opening never blocks, and what is read has a limit.

Everything here raises `OSError`; its `strerror` says what stands there.
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
"""A pipe with a name may have nobody at its other end; one without has, or has ended."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_CHUNK = 1 << 16


class NotRegular(OSError):
    """Something other than a regular file lies in a folder, where a file was looked for."""


def kind(mode: int) -> str:
    """Return what stands there, in words.

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
    """Return the beginning of a file found at `place` below `folder`: `at_most` bytes, and one more if there is more.

    Raises:
        NotRegular: it, or a folder on the way, is a link or anything else than it should be.
        OSError: it cannot be opened or read.
    """
    with contextlib.ExitStack() as opened:
        descriptor = _opened_found(folder, place, opened)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(min(os.fstat(descriptor).st_size, at_most) + 1)[: at_most + 1]


def read_named(path: Path, at_most: int, silence_s: float = SILENCE_S) -> bytes:
    """Return the beginning of a file that the user named, as `read_found` does. It may be a link, a pipe or a terminal.

    Raises:
        OSError: it cannot be opened or read; it is a folder, a socket or a disk; a named pipe is silent for too long.
    """
    with open_named(path, silence_s) as file:
        parts, left = [], at_most + 1
        while left > 0 and (part := file.read(min(left, _CHUNK))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def read_named_regular(path: Path, at_most: int) -> bytes:
    """Return the beginning of a regular file that the user named; links are followed.

    Raises:
        NotRegular: it is something else.
        OSError: it cannot be opened or read.
    """
    descriptor = os.open(path, _FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        _refuse_irregular(descriptor, path)
        # No more than it has: room for the largest there may be takes longer to get than most files take to read.
        return file.read(min(os.fstat(descriptor).st_size, at_most) + 1)[: at_most + 1]


def open_named(path: Path, silence_s: float = SILENCE_S) -> BinaryIO:
    """Return what the user named, open for reading. Raises as `read_named` does, but for what comes after a first byte.

    A pipe's reader waits for as long as its writer lives; one with a name, that nobody writes into, is given up.
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
    """Return a file of ours in `folder`, open for more at its end. Raises OSError where a link or a pipe lies there."""
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
    """Open a place below a folder, part by part, so that no part of it is a link at the moment that counts."""
    *folders, name = place.split("/")
    if any(part in {"", ".", ".."} for part in (*folders, name)):
        raise NotRegular(errno.EINVAL, "it is no place below that folder", place)
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    opened.callback(os.close, here)
    path = folder
    for part in folders:
        path = path / part
        with _explained(path):
            here = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        opened.callback(os.close, here)
    path = path / name
    # A device may act on being opened, so what stands there is asked first; the descriptor is asked again.
    with _explained(path):
        _refuse_mode(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode, path)
        descriptor = os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=here)
    opened.callback(os.close, descriptor)
    _refuse_irregular(descriptor, path)
    return descriptor


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say that a link is one: of opening it, the system says ELOOP or ENOTDIR; of a pipe without a reader, ENXIO."""
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
    """Ask what lies there now, for a message; a regular file where nothing can be said."""
    try:
        return path.lstat().st_mode
    except OSError:
        return stat.S_IFREG


def _refuse_unreadable(descriptor: int, path: Path) -> None:
    """Refuse what is not read from beginning to end: a folder, a disk."""
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
    """Say whether a pipe has no name: who made it holds the other end, or has let it go."""
    try:
        return str(Path(f"/proc/self/fd/{pipe}").readlink()).startswith("pipe:")
    except OSError:
        return False


def _await_writer(pipe: int, path: Path, silence_s: float) -> None:
    """Wait for the first byte, or for a writer that came and went. Raises TimeoutError where there is neither."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    if not poll.poll(silence_s * 1e3):
        raise TimeoutError(errno.ETIMEDOUT, f"nothing was written into this pipe for {silence_s:g} s", str(path))
