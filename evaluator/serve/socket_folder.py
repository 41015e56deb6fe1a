"""Private folder with the socket of the ready judge: only the judge's user may enter.

The socket is reached through the open folder. The socket's path may therefore be of any length, and a folder replaced
after the check is never used.
"""

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from evaluator.errors import InfraError
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


def listen(folder: int) -> socket.socket:
    """Listen on the socket; replace the socket of a dead server. The caller holds the lock of the folder."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET, dir_fd=folder)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o777 & ~_OWNER_ONLY)
        try:
            listener.bind(_path(folder))
        finally:
            os.umask(before)
        listener.listen(_WAITING_CLIENTS)
    except BaseException:
        listener.close()
        raise
    return listener


def connect(folder: int, within_s: float) -> socket.socket:
    """Connect to the server. Raises OSError if no server listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(within_s)
        connection.connect(_path(folder))
        connection.settimeout(None)
        _refuse_stranger(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_stranger(connection: socket.socket) -> None:
    if peer_uid(connection) != os.geteuid():
        raise PermissionError("the server belongs to another user")


def peer_uid(connection: socket.socket) -> int:
    """Return the user of the other end, as reported by the kernel."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return int(uid)


def _path(folder: int) -> str:
    return f"/proc/self/fd/{folder}/{SOCKET}"
