"""Client of the ready judge. Imports only the modules for a lookup of the socket."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from evaluator.api import ready_socket
from evaluator.api.ready_protocol import (
    GRADES,
    HELLO,
    MOST_REPLY_BYTES,
    STATUS,
    STOP,
    Hello,
    LocalOrder,
    Stopping,
    Welcome,
    answers,
    identity,
)
from evaluator.batch.workers.messages import GradeFinished, NotGraded, PrepareWorker, Result, StageEntered, WorkerOrder
from evaluator.batch.workers.worker_handle import NoWorker, Slot
from evaluator.errors import InfraError, UsageError
from evaluator.grade_options import GradeOptions
from evaluator.records import Record

VARIABLE = "WARPGRADE_READY"
"""Environment variable: 0 makes every grade without the ready judge."""
NO_SANDBOX = "the ready judge grades only in the sandbox"
_GREETING_S = 5.0
_MOST_HEAD_BYTES = 64 << 10
_OFF = frozenset({"0", "false", "no", "off"})
_SILENT = "the ready judge does not answer"
_T = TypeVar("_T")


def is_allowed() -> bool:
    """Return whether the environment allows a ready judge, as by default."""
    return os.environ.get(VARIABLE, "").lower() not in _OFF


def is_running() -> bool:
    """Return whether a ready judge of the user listens."""
    try:
        _connection().close()
    except NoWorker:
        return False
    return True


def reach(options: GradeOptions) -> Welcome:
    """Ask whether the ready judge grades with `options`. Raises NoWorker if not, with an empty reason if none runs."""
    _require_sandbox(options)
    with _connection() as connection:
        return _document(connection, "POST", HELLO, Hello(identity=identity(), device=options.device), Welcome)


def grade(order: WorkerOrder, on_stage: Callable[[StageEntered], None]) -> GradeFinished | NotGraded:
    """Let the ready judge grade. An exception, for example Ctrl-C, also ends the grade in the server.

    Raises NoWorker if the judge refuses, with an empty reason if none runs.
    """
    _require_sandbox(order.options)
    with _connection() as connection:
        return _result(connection, order, on_stage)


def status() -> bytes:
    """Return the status of the ready judge as JSON. Raises UsageError if none runs."""
    return msgspec.json.encode(_ask("GET", STATUS, msgspec.Raw))


def stop() -> None:
    """End the ready judge; return after the last grade. Raises UsageError if none runs."""
    _ask("POST", STOP, Stopping)
    ready_socket.await_end()


class ReadyWorker:
    """The ready judge behind the interface of the worker pool (`worker_handle.WorkerHandle`)."""

    def __init__(self, _slot: Slot, _log: Path | None) -> None:
        """Use the running ready judge, with a connection for each grade."""
        self._changing = threading.Lock()
        self._connection: socket.socket | None = None
        self._interrupted = False

    def prepare(self, _: PrepareWorker) -> bool:
        """Return true: the ready judge prepares its own workers."""
        return True

    def grade(self, order: WorkerOrder, on_stage: Callable[[StageEntered], None]) -> Result:
        """Make a grade. Raises NoWorker if no ready judge accepts the grade any more."""
        try:
            with _connection() as connection:
                try:
                    self._use(connection)
                    return _result(connection, order, on_stage)
                finally:
                    self._use(None)
        except NoWorker as no_worker:
            raise NoWorker(str(no_worker) or "the ready judge has ended") from None

    def interrupt(self) -> None:
        """End the current grade. May be called while another thread waits in `grade`."""
        with self._changing:
            self._interrupted = True
            self._end_connection()

    def wait(self) -> None:
        """Return at once: the server ends the grade."""

    def close(self) -> None:
        """End the current grade."""
        self.interrupt()

    def _use(self, connection: socket.socket | None) -> None:
        with self._changing:
            self._connection = connection
            if self._interrupted:
                self._end_connection()

    def _end_connection(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)


def _require_sandbox(options: GradeOptions) -> None:
    """Raise NoWorker for a grade without the sandbox, with an empty reason if no ready judge runs."""
    if not options.is_sandboxed:
        raise NoWorker(NO_SANDBOX if is_running() else "")


def _connection() -> socket.socket:
    try:
        return ready_socket.connect(_GREETING_S)
    except (FileNotFoundError, ConnectionRefusedError):  # never started, ended, or killed
        raise NoWorker from None
    except InfraError as error:
        raise NoWorker(f"{error.message}: {error.hint}") from None
    except OSError as error:
        raise NoWorker(f"{_SILENT}: {error.strerror or error}") from None


def _result(
    connection: socket.socket, order: WorkerOrder, on_stage: Callable[[StageEntered], None]
) -> GradeFinished | NotGraded:
    try:
        with _response(connection, "POST", GRADES, LocalOrder(identity=identity(), order=order)) as response:
            for line in _lines(response):
                if not isinstance(answer := answers.decode(line), StageEntered):
                    return answer
                on_stage(answer)
    except (OSError, ValueError):
        pass
    return NotGraded(reason="the ready judge ended during the grade", again=True)


def _ask(method: str, path: str, kind: type[_T]) -> _T:
    """Return the document of a response. Raises UsageError if no ready judge runs."""
    try:
        with _connection() as connection:
            return _document(connection, method, path, None, kind)
    except NoWorker as no_worker:
        if str(no_worker):
            raise InfraError(str(no_worker)) from None
        message = f"no ready judge runs: nothing listens in {ready_socket.folder_path()}"
        raise UsageError(message, hint="start one: warpgrade serve") from None


def _document(connection: socket.socket, method: str, path: str, body: Record | None, kind: type[_T]) -> _T:
    with _response(connection, method, path, body) as response:
        try:
            return msgspec.json.decode(b"".join(_lines(response)), type=kind)
        except (OSError, ValueError):
            raise NoWorker(_SILENT) from None


@contextlib.contextmanager
def _response(connection: socket.socket, method: str, path: str, body: Record | None) -> Iterator[BinaryIO]:
    """Send a request, and yield the body of the response.

    HTTP/1.0: the body ends with the connection. `http.client` would import modules for some milliseconds.

    Raises NoWorker for a refusal, and without a response in time.
    """
    content = b"" if body is None else msgspec.json.encode(body)
    with connection.makefile("rb") as response:
        try:
            head = b"%s %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (method.encode(), path.encode(), len(content))
            connection.sendall(head + content)
            protocol, _, rest = response.readline(_MOST_HEAD_BYTES).partition(b" ")
            while response.readline(_MOST_HEAD_BYTES).strip():
                pass
            if not protocol.startswith(b"HTTP/"):
                raise NoWorker(_SILENT)
            if not rest.startswith(b"200"):
                refusal = msgspec.json.decode(b"".join(_lines(response)), type=dict[str, str])
                raise NoWorker(refusal.get("error", _SILENT))
            connection.settimeout(None)
        except (OSError, ValueError):
            raise NoWorker(_SILENT) from None
        yield response


def _lines(response: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a response. Raises ValueError for a line without an end within the limit."""
    while line := response.readline(MOST_REPLY_BYTES):
        if len(line) == MOST_REPLY_BYTES:
            raise ValueError(f"a line of more than {MOST_REPLY_BYTES} bytes")
        yield line
