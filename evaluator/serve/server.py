"""The ready judge: accepts clients on a Unix socket until a signal or a client's request to end."""

import contextlib
import datetime
import fcntl
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

from evaluator.batch.workers.messages import Graded, NotGraded, Order
from evaluator.errors import InfraError, UsageError
from evaluator.records import DeviceKind
from evaluator.serve import socket_folder
from evaluator.serve.call import ClientCall
from evaluator.serve.connection import Connection
from evaluator.serve.grades import Grades
from evaluator.serve.identity import identity
from evaluator.serve.status import ServerStatus, tree_bytes
from evaluator.text import one_line
from evaluator.version import __version__

MOST_CLIENTS = 200
"""Connections at a time; more would take more descriptors than a process may open."""
_ROUND_S = 1.0


class Server:
    """Server of a user. `run` returns when all grades have ended."""

    def __init__(self, grades: Grades, idle_minutes: float, tell: Callable[[str], None]) -> None:
        """Serve with the workers of `grades`, released after `idle_minutes`; `tell` prints a line."""
        self.grades = grades
        self.identity = identity()
        self._idle_minutes = idle_minutes
        self._tell = tell
        self._started_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self._changing = threading.Lock()
        self._calls: set[ClientCall] = set()
        self._clients = 0
        self._made = 0
        self._signals = 0
        self._asked_to_stop = threading.Event()
        self._at_end = threading.Event()

    @property
    def is_ending(self) -> bool:
        """Whether the server accepts no further grade."""
        return self._asked_to_stop.is_set()

    def run(self, device: DeviceKind) -> None:
        """Serve until the end. Workers for `device` start at once.

        Raises:
            UsageError: another server of the user is running.
            InfraError: the socket cannot be made, or the device is missing.
        """
        try:
            with _locked_folder() as folder, contextlib.closing(self.grades):
                self.grades.prepare(device)
                with _listening(folder) as listener, self._signals_noted() as woken:
                    self._tell(f"ready judge {os.getpid()} listens on {_socket_path()}; device {device.value}")
                    self._accept_all(listener, woken)
        finally:
            self._at_end.set()  # Only now another server may start.
        self._tell(f"ended after {self._made} grades")

    def stop(self) -> None:
        """End the server after the current grades."""
        self._asked_to_stop.set()

    def wait_for_end(self) -> None:
        """Wait until the last grade has ended and no worker is left."""
        self._at_end.wait()

    def began(self, call: ClientCall) -> None:
        """Count a grade in progress."""
        with self._changing:
            self._calls.add(call)

    def ended(self, call: ClientCall, order: Order, result: Graded | NotGraded, wall_s: float) -> None:
        """Count a finished or abandoned grade, and print a line about the grade."""
        with self._changing:
            self._calls.remove(call)
            self._made += 1
        submission = order.submission or order.unread
        name = "nothing" if submission is None else submission.name
        self._tell(one_line(f"{order.problem.name} {name}: {_outcome(call, result)}, {wall_s:.2f} s", 200))
        if not self.is_ending:
            self.grades.prepare(order.options.device)

    def status(self) -> ServerStatus:
        """Return the server's status."""
        with self._changing:
            running, grades = len(self._calls), self._made
        return ServerStatus(
            pid=os.getpid(),
            version=__version__,
            socket=_socket_path(),
            started_at=self._started_at,
            idle_minutes=self._idle_minutes,
            devices=self.grades.devices,
            grades=grades,
            running=running,
            ending=self.is_ending,
            memory_bytes=tree_bytes(os.getpid()),
            workers=self.grades.workers,
        )

    def _accept_all(self, listener: socket.socket, woken: int) -> None:
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(listener, select.POLLIN)
        while not (self.is_ending and not self._calls) and self._signals < 2:
            ready = dict(poll.poll(_ROUND_S * 1000))
            if woken in ready:
                os.read(woken, 64)
                self._heed_signal()
            if listener.fileno() in ready:
                self._accept(listener)
            self.grades.release_idle(self._idle_minutes * 60)
        with self._changing:
            calls = list(self._calls)
        for call in calls:
            call.abandon()

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, _ = listener.accept()
        except OSError as error:  # out of descriptors, or the client has gone
            self._tell(f"a client was not accepted: {error.strerror}")
            time.sleep(_ROUND_S / 10)
            return
        with self._changing:
            self._clients += 1
            too_many = self._clients > MOST_CLIENTS
        if too_many or socket_folder.peer_uid(client) != os.geteuid():
            self._leave(client)
            return
        threading.Thread(target=self._serve, args=(client,), name="client", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            Connection(self, client).serve()
        finally:
            self._leave(client)

    def _leave(self, client: socket.socket) -> None:
        client.close()
        with self._changing:
            self._clients -= 1

    def _heed_signal(self) -> None:
        self.stop()
        if self._signals == 1 and self._calls:
            self._tell(f"ending after {len(self._calls)} grades in progress; a second signal ends them")

    @contextlib.contextmanager
    def _signals_noted(self) -> Iterator[int]:
        """Count SIGTERM and SIGINT inside the context. Yield a descriptor that becomes readable with each.

        Outside the main thread Python receives no signals: a server in another thread ends by `stop` alone.
        """

        def note(_number: int, _frame: object) -> None:
            self._signals += 1

        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        with contextlib.ExitStack() as leaving:
            leaving.callback(os.close, woken)
            leaving.callback(os.close, wake)
            if threading.current_thread() is threading.main_thread():
                for number in (signal.SIGTERM, signal.SIGINT):
                    leaving.callback(signal.signal, number, signal.signal(number, note))
                leaving.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(wake))
            yield woken


def _outcome(call: ClientCall, result: Graded | NotGraded) -> str:
    if call.is_abandoned:
        return "abandoned"
    match result:
        case Graded(card=card):
            return card.status.value.replace("_", " ")
        case NotGraded(reason=reason):
            return f"not graded: {reason}"


@contextlib.contextmanager
def _locked_folder() -> Iterator[int]:
    """Open the folder, and hold the lock until the server ends. Raises UsageError if another server holds the lock."""
    with socket_folder.opened(create=True) as folder:
        lock = _lock_file(folder)
        try:
            _lock(lock)
            yield folder
        finally:
            os.close(lock)


def _lock_file(folder: int) -> int:
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(socket_folder.LOCK, flags, 0o600, dir_fd=folder)
    except OSError as error:
        path = socket_folder.folder_path() / socket_folder.LOCK
        raise InfraError(f"cannot use {path}: {error.strerror}", hint="remove it, or free space there") from None


def _lock(lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
        hint = "end it with `warpgrade serve --stop`"
        raise UsageError(f"a ready judge of this user is running already (process {pid})", hint=hint) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)


@contextlib.contextmanager
def _listening(folder: int) -> Iterator[socket.socket]:
    try:
        listener = socket_folder.listen(folder)
    except OSError as error:
        hint = "set XDG_RUNTIME_DIR to a folder on a local disk"
        raise InfraError(f"cannot make the socket {_socket_path()}: {error.strerror}", hint=hint) from None
    with listener:
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                os.unlink(socket_folder.SOCKET, dir_fd=folder)


def _socket_path() -> str:
    return str(socket_folder.folder_path() / socket_folder.SOCKET)
