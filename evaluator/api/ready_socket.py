"""Private folder with the socket of the ready judge: only the judge's user may enter.

The socket is reached through the open folder. The socket's path may therefore be of any length, and a folder replaced
after the check is never used.
"""

import contextlib
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from evaluator.errors import InfraError, UsageError
from evaluator.paths import cache_folder

SOCKET = "judge.sock"
LOCK = "judge.lock"
_PRIVATE = 0o700
_OWNER_ONLY = 0o600
_WAITING_CLIENTS = 256
_CREDENTIALS = struct.Struct("=iII")
"""The kernel's `struct ucred`: process, user, group."""


def folder_path() -> Path:
    """Return the folder: in the user's runtime folder, else in the cache."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "warpgrade" if runtime else cache_folder() / "ready"


def socket_path() -> str:
    """Return the path of the socket."""
    return str(folder_path() / SOCKET)


@contextlib.contextmanager
def opened(*, create: bool = False) -> Iterator[int]:
    """Open the folder.

    Raises:
        FileNotFoundError: the folder does not exist.
        InfraError: the folder belongs to another user, or other users may enter.
    """
    path = folder_path()
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.mkdir(_PRIVATE)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InfraError(f"cannot use the folder {path}: {error.strerror}", hint="remove it") from None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & ~_PRIVATE:
            hint = f"make it private: chmod 700 {path}"
            raise InfraError(f"the folder {path} is not private to this user", hint=hint)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked() -> Iterator[int]:
    """Create and open the folder, and hold its lock. Raises UsageError if another server holds the lock."""
    with opened(create=True) as folder, _lock_file(folder) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            hint = "end it with `warpgrade serve --stop`"
            raise UsageError(f"a ready judge of this user is running already (process {pid})", hint=hint) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield folder


def await_end() -> None:
    """Wait until no server holds the lock: an ended server has no worker then."""
    with contextlib.suppress(FileNotFoundError), opened() as folder, _lock_file(folder) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


@contextlib.contextmanager
def _lock_file(folder: int) -> Iterator[int]:
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(LOCK, flags, _OWNER_ONLY, dir_fd=folder)
    except OSError as error:
        hint = "remove it, or free space there"
        raise InfraError(f"cannot use {folder_path() / LOCK}: {error.strerror}", hint=hint) from None
    try:
        yield lock
    finally:
        os.close(lock)


@contextlib.contextmanager
def listening(folder: int) -> Iterator[socket.socket]:
    """Listen on the socket; replace the socket of a dead server. The caller holds the lock of the folder."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(SOCKET, dir_fd=folder)
            listener.bind(_path(folder))
            Path(_path(folder)).chmod(_OWNER_ONLY)  # Before: the folder is closed to other users.
            listener.listen(_WAITING_CLIENTS)
        except OSError as error:
            hint = "set XDG_RUNTIME_DIR to a folder on a local disk"
            raise InfraError(f"cannot make the socket {socket_path()}: {error.strerror}", hint=hint) from None
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                os.unlink(SOCKET, dir_fd=folder)


def connect(within_s: float) -> socket.socket:
    """Connect to the server.

    Raises:
        OSError: no server listens, or the server belongs to another user.
        InfraError: the folder is not private.
    """
    with contextlib.ExitStack() as closed_on_error:
        connection = closed_on_error.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        connection.settimeout(within_s)
        with opened() as folder:
            connection.connect(_path(folder))
        if peer_uid(connection) != os.geteuid():
            raise PermissionError("the server belongs to another user")
        closed_on_error.pop_all()
    return connection


def peer_uid(connection: socket.socket) -> int:
    """Return the user of the other end, as reported by the kernel."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return int(uid)


def _path(folder: int) -> str:
    return f"/proc/self/fd/{folder}/{SOCKET}"
