"""Client of the ready judge. Imports only the modules for a lookup of the socket."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec

from evaluator.batch.workers.messages import GradeFinished, NotGraded, PrepareWorker, Result, StageEntered, WorkerOrder
from evaluator.batch.workers.worker_handle import NoWorker, Slot
from evaluator.errors import InfraError, UsageError
from evaluator.grade_options import GradeOptions
from evaluator.records import Record
from evaluator.serve import protocol
from evaluator.serve.protocol import (
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

VARIABLE = "WARPGRADE_READY"
"""Environment variable: 0 makes every grade without the ready judge."""
NO_SANDBOX = "the ready judge grades only in the sandbox"
_GREETING_S = 5.0
_MOST_HEAD_BYTES = 64 << 10
_OFF = frozenset({"0", "false", "no", "off"})
_SILENT = "the ready judge does not answer"
_T = TypeVar("_T")


class Unready(NamedTuple):
    """No ready judge makes the grade: the reason, or nothing if none runs."""

    reason: str = ""


def is_allowed() -> bool:
    """Return whether the environment allows a ready judge, as by default."""
    return os.environ.get(VARIABLE, "").lower() not in _OFF


def is_running() -> bool:
    """Return whether a ready judge of the user listens."""
    try:
        _connection().close()
    except (OSError, InfraError):
        return False
    return True


def reach(options: GradeOptions) -> Welcome | Unready:
    """Ask whether the ready judge grades with `options`."""
    if not options.is_sandboxed:
        return Unready(NO_SANDBOX if is_running() else "")
    connection = _connected()
    if isinstance(connection, Unready):
        return connection
    with connection:
        try:
            return _document(connection, "POST", HELLO, Hello(identity=identity(), device=options.device), Welcome)
        except _Refused as refused:
            return Unready(refused.reason)


def grade(order: WorkerOrder, on_stage: Callable[[StageEntered], None]) -> GradeFinished | NotGraded | Unready:
    """Let the ready judge grade. An exception, for example Ctrl-C, also ends the grade in the server.

    Unready: no ready judge runs, or the judge refuses.
    """
    connection = _connected()
    if isinstance(connection, Unready):
        return connection
    with connection:
        return _result(connection, order, on_stage)


def status() -> bytes:
    """Return the status of the ready judge as JSON. Raises UsageError if none runs."""
    return msgspec.json.encode(_ask("GET", STATUS, msgspec.Raw))


def stop() -> None:
    """End the ready judge; return after the last grade. Raises UsageError if none runs."""
    pid = _ask("POST", STOP, Stopping).pid
    with contextlib.suppress(FileNotFoundError), protocol.opened() as folder:
        protocol.await_end(folder, pid)


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
        connection = _connected()
        if isinstance(connection, Unready):
            raise NoWorker(connection.reason or "the ready judge has ended")
        try:
            self._use(connection)
            result = _result(connection, order, on_stage)
        finally:
            self._use(None)
            connection.close()
        if isinstance(result, Unready):
            raise NoWorker(result.reason)
        return result

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


class _Refused(Exception):
    """The server refuses a request."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _connection() -> socket.socket:
    with protocol.opened() as folder:
        return protocol.connect(folder, _GREETING_S)


def _connected() -> socket.socket | Unready:
    try:
        return _connection()
    except (FileNotFoundError, ConnectionRefusedError):  # never started, ended, or killed
        return Unready()
    except InfraError as error:
        return Unready(error.message)
    except OSError as error:
        return Unready(f"{_SILENT}: {error.strerror or error}")


def _result(
    connection: socket.socket, order: WorkerOrder, on_stage: Callable[[StageEntered], None]
) -> GradeFinished | NotGraded | Unready:
    try:
        with _response(connection, "POST", GRADES, LocalOrder(identity=identity(), order=order)) as response:
            for line in _lines(response):
                if not isinstance(answer := answers.decode(line), StageEntered):
                    return answer
                on_stage(answer)
    except _Refused as refused:
        return Unready(refused.reason)
    except (OSError, ValueError):
        pass
    return NotGraded(reason="the ready judge ended during the grade", again=True)


def _ask(method: str, path: str, kind: type[_T]) -> _T:
    """Return the document of a response. Raises UsageError if no ready judge runs."""
    try:
        connection = _connection()
    except (FileNotFoundError, ConnectionRefusedError):
        place = protocol.folder_path()
        raise UsageError(
            f"no ready judge runs: nothing listens in {place}", hint="start one: warpgrade serve"
        ) from None
    except OSError as error:
        raise InfraError(f"{_SILENT}: {error.strerror or error}") from None
    with connection:
        try:
            return _document(connection, method, path, None, kind)
        except _Refused as refused:
            raise InfraError(refused.reason) from None


def _document(connection: socket.socket, method: str, path: str, body: Record | None, kind: type[_T]) -> _T:
    with _response(connection, method, path, body) as response:
        try:
            return msgspec.json.decode(b"".join(_lines(response)), type=kind)
        except (OSError, ValueError):
            raise _Refused(_SILENT) from None


@contextlib.contextmanager
def _response(connection: socket.socket, method: str, path: str, body: Record | None) -> Iterator[BinaryIO]:
    """Send a request, and yield the body of the response.

    HTTP/1.0: the body ends with the connection. Raises `_Refused` for a refusal, and without a response in time.
    """
    content = b"" if body is None else msgspec.json.encode(body)
    with connection.makefile("rb") as response:
        try:
            connection.settimeout(_GREETING_S)
            head = b"%s %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % (method.encode(), path.encode(), len(content))
            connection.sendall(head + content)
            protocol, _, rest = response.readline(_MOST_HEAD_BYTES).partition(b" ")
            while response.readline(_MOST_HEAD_BYTES).strip():
                pass
            if not protocol.startswith(b"HTTP/"):
                raise _Refused(_SILENT)
            if not rest.startswith(b"200"):
                refusal = msgspec.json.decode(b"".join(_lines(response)), type=dict[str, str])
                raise _Refused(refusal.get("error", _SILENT))
            connection.settimeout(None)
        except (OSError, ValueError):
            raise _Refused(_SILENT) from None
        yield response


def _lines(response: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a response. Raises ValueError for a line without an end within the limit."""
    while line := response.readline(MOST_REPLY_BYTES):
        if len(line) == MOST_REPLY_BYTES:
            raise ValueError(f"a line of more than {MOST_REPLY_BYTES} bytes")
        yield line
