"""Private folder with the socket of the ready judge: only the judge's user may enter.

The socket is reached through the open folder. The socket's path may therefore be of any length, and a folder replaced
after the check is never used.

Properties in which the ready judge and a client must agree, because a difference could change a grade.

Runners and compilers have a separate, fixed environment. The judge reads the variables below: the variables select
GPUs, compilers, libraries and the number of threads.
"""

import contextlib
import fcntl
import os
import shutil
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from evaluator.batch.workers.messages import GradeFinished, NotGraded, StageEntered, WorkerOrder
from evaluator.errors import InfraError, UsageError
from evaluator.paths import cache_folder
from evaluator.records import DeviceKind, Record
from evaluator.version import __version__

SOCKET = "judge.sock"
LOCK = "judge.lock"
_PRIVATE = 0o700
_OWNER_ONLY = 0o600
_WAITING_CLIENTS = 256
_LOOK_S = 0.02
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


def socket_path() -> str:
    """Return the path of the socket."""
    return str(folder_path() / SOCKET)


@contextlib.contextmanager
def locked() -> Iterator[int]:
    """Create and open the folder, and hold its lock. Raises UsageError if another server holds the lock."""
    with opened(create=True) as folder:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.open(LOCK, flags, 0o600, dir_fd=folder)
        except OSError as error:
            hint = "remove it, or free space there"
            raise InfraError(f"cannot use {folder_path() / LOCK}: {error.strerror}", hint=hint) from None
        try:
            if not _has_locked(lock, fcntl.LOCK_EX):
                hint = "end it with `warpgrade serve --stop`"
                raise UsageError(f"a ready judge of this user is running already (process {_pid(lock)})", hint=hint)
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            yield folder
        finally:
            os.close(lock)


def await_end(folder: int, pid: int) -> None:
    """Wait until the server with this process id has released the lock: the process has no worker then."""
    lock = os.open(LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
    try:
        while not _has_locked(lock, fcntl.LOCK_SH) and _pid(lock) == str(pid):
            time.sleep(_LOOK_S)
    finally:
        os.close(lock)


def _has_locked(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pid(lock: int) -> str:
    return os.pread(lock, 20, 0).decode("ascii", "replace").strip()


@contextlib.contextmanager
def listening(folder: int) -> Iterator[socket.socket]:
    """Listen on the socket; replace the socket of a dead server. The caller holds the lock of the folder."""
    try:
        listener = _listener(folder)
    except OSError as error:
        hint = "set XDG_RUNTIME_DIR to a folder on a local disk"
        raise InfraError(f"cannot make the socket {socket_path()}: {error.strerror}", hint=hint) from None
    with listener:
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                os.unlink(SOCKET, dir_fd=folder)


def _listener(folder: int) -> socket.socket:
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


_PACKAGE = Path(__file__).resolve().parents[1]
_NAMES = frozenset({"CXX", "LIBRARY_PATH", "PYTHONPATH", "TMPDIR", "WARPGRADE_CACHE_LIMIT"})
_PREFIXES = ("ATEN_", "CUBLAS", "CUDA_", "CUDNN_", "GOMP_", "KMP_", "LD_", "MKL_", "NVIDIA_", "OMP_", "OPENBLAS_")
_MORE_PREFIXES = ("PYTORCH_", "TORCH", "TRITON_")
_TOOLS = ("g++", "c++", "nvcc", "ncu", "ninja")
_SHOWN = 3


class Identity(Record, frozen=True):
    """Version and files of Warpgrade, and the settings of the judge's process and machine."""

    version: str
    code: str
    settings: dict[str, str]


def identity() -> Identity:
    """Return the identity of the current process. Takes milliseconds."""
    return Identity(version=__version__, code=_code(), settings=_settings(os.environ))


def difference(server: Identity, client: Identity) -> str | None:
    """Return why a server cannot grade for a client; None if both agree.

    >>> same = Identity("1", "a", {"cores": "0 1"})
    >>> difference(same, same)
    >>> difference(same, Identity("1", "a", {"cores": "0 1", "CUDA_VISIBLE_DEVICES": "1"}))
    'the ready judge was started with another CUDA_VISIBLE_DEVICES'
    >>> difference(same, Identity("2", "a", {}))
    'the ready judge is of another version: restart it'
    """
    if (server.version, server.code) != (client.version, client.code):
        return "the ready judge is of another version: restart it"
    names = sorted(server.settings.keys() | client.settings.keys())
    differing = [name for name in names if server.settings.get(name) != client.settings.get(name)]
    if not differing:
        return None
    more = f" and {len(differing) - _SHOWN} more settings" if len(differing) > _SHOWN else ""
    return f"the ready judge was started with another {', '.join(differing[:_SHOWN])}{more}"


def _code() -> str:
    """Return a text that changes with every change of the package: from the folder, and size and time of each file.

    Reading the contents instead would take a tenth of a second.
    """
    stamps = [(path, status.st_size, status.st_mtime_ns) for path, status in _files(str(_PACKAGE))]
    import hashlib

    return f"{_PACKAGE} {hashlib.sha256(repr(sorted(stamps)).encode('utf-8', 'surrogatepass')).hexdigest()}"


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield entry.path, entry.stat(follow_symlinks=False)
            elif entry.name != "__pycache__":
                yield from _files(entry.path)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    prefixes = (*_PREFIXES, *_MORE_PREFIXES)
    variables = {name: value for name, value in environment.items() if name in _NAMES or name.startswith(prefixes)}
    tools = {f"{tool} on PATH": shutil.which(tool) or "" for tool in _TOOLS}
    machine = {
        "Python": f"{sys.prefix} {sys.version}",
        "cache folder": str(cache_folder().absolute()),
        "cores": " ".join(map(str, sorted(os.sched_getaffinity(0)))),
    }
    return {**variables, **tools, **machine}


HELLO, GRADES, STATUS, STOP = "/v1/hello", "/v1/grades", "/v1/status", "/v1/stop"
MOST_REQUEST_BYTES = 32 << 20
"""A problem, a submission and another submission of 1 MiB each, escaped in JSON."""
MOST_REPLY_BYTES = 256 << 20


class Hello(Record, frozen=True):
    """Question whether the judge grades on `device` for a client with this identity."""

    identity: Identity
    device: DeviceKind


class Welcome(Record, frozen=True):
    """Server's consent. `at_once` is the number of concurrent grades on the device."""

    pid: int
    at_once: int


class LocalOrder(Record, frozen=True):
    """Order of a grade, by a client with this identity."""

    identity: Identity
    order: WorkerOrder


class Stopping(Record, frozen=True):
    """Server's consent to end. The end of the process releases the lock of the socket's folder."""

    pid: int


Answer = StageEntered | GradeFinished | NotGraded
answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
