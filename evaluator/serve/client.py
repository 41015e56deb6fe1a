"""Client of the ready judge. Imports only the modules for a lookup of the socket."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.batch.workers.framing import read_message, write_message
from evaluator.batch.workers.messages import Graded, NotGraded, Order, Prepare, Result, Stage
from evaluator.batch.workers.worker_handle import NoWorker, Slot
from evaluator.errors import InfraError, UsageError
from evaluator.grade_options import GradeOptions
from evaluator.records import DeviceKind, Record
from evaluator.serve import socket_folder
from evaluator.serve.identity import identity
from evaluator.serve.protocol import (
    MOST_REPLY_BYTES,
    AskStatus,
    AskStop,
    Greeting,
    Hello,
    Refusal,
    Welcome,
    answers,
    greetings,
)

VARIABLE = "WARPGRADE_READY"
"""Environment variable: 0 makes every grade without the ready judge."""
NO_SANDBOX = "the ready judge grades only in the sandbox"
_GREETING_S = 5.0
_OFF = frozenset({"0", "false", "no", "off"})


class Unready(NamedTuple):
    """No ready judge makes the grade: the reason, or nothing if none runs."""

    reason: str = ""


def is_allowed() -> bool:
    """Return whether the environment allows a ready judge, as by default."""
    return os.environ.get(VARIABLE, "").lower() not in _OFF


def is_running() -> bool:
    """Return whether a ready judge of the user listens."""
    try:
        with socket_folder.opened() as folder:
            socket_folder.connect(folder, _GREETING_S).close()
    except (OSError, InfraError):
        return False
    return True


def reach(options: GradeOptions) -> Welcome | Unready:
    """Ask whether the ready judge grades with `options`."""
    if not options.is_sandboxed:
        return Unready(NO_SANDBOX if is_running() else "")
    reached = _connected(options.device)
    if isinstance(reached, Unready):
        return reached
    connection, welcome = reached
    connection.close()
    return welcome


def grade(order: Order, on_stage: Callable[[Stage], None]) -> Graded | NotGraded | Unready:
    """Let the ready judge grade. An exception, for example Ctrl-C, also ends the grade in the server.

    Unready: no ready judge runs, or the judge refuses or has died.
    """
    reached = _connected(order.options.device)
    if isinstance(reached, Unready):
        return reached
    with reached[0] as connection:
        return _result(connection, order, on_stage)


def status() -> bytes:
    """Return the status of the ready judge as JSON. Raises UsageError if none runs."""
    with _ask(AskStatus()) as connection:
        try:
            return read_message(connection.fileno(), MOST_REPLY_BYTES, _GREETING_S)
        except (EOFError, OSError, ValueError) as error:
            raise InfraError(f"the ready judge does not answer: {error}") from None


def stop() -> None:
    """End the ready judge; return after the last grade. Raises UsageError if none runs."""
    with _ask(AskStop()) as connection, contextlib.suppress(EOFError, OSError):
        read_message(connection.fileno(), MOST_REPLY_BYTES)  # No reply: the end of the server closes the connection.


class ReadyWorker:
    """The ready judge behind the interface of the worker pool (`worker_handle.WorkerHandle`)."""

    def __init__(self, _slot: Slot, _log: Path | None) -> None:
        """Use the running ready judge, with a connection for each grade."""
        self._changing = threading.Lock()
        self._connection: socket.socket | None = None
        self._interrupted = False

    def prepare(self, _: Prepare) -> bool:
        """Return true: the ready judge prepares its own workers."""
        return True

    def grade(self, order: Order, on_stage: Callable[[Stage], None]) -> Result:
        """Make a grade. Raises NoWorker if no ready judge accepts the grade any more."""
        reached = _connected(order.options.device)
        if isinstance(reached, Unready):
            raise NoWorker(reached.reason or "the ready judge has ended")
        connection, _ = reached
        try:
            self._use(connection)
            result = _result(connection, order, on_stage)
        finally:
            self._use(None)
            connection.close()
        return NotGraded(reason=result.reason, again=True) if isinstance(result, Unready) else result

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


def _connected(device: DeviceKind) -> tuple[socket.socket, Welcome] | Unready:
    """Connect to the ready judge and send the client's `Hello`."""
    try:
        with socket_folder.opened() as folder:
            connection = socket_folder.connect(folder, _GREETING_S)
    except (FileNotFoundError, ConnectionRefusedError):  # never started, ended, or killed
        return Unready()
    except InfraError as error:
        return Unready(error.message)
    except OSError as error:
        return Unready(f"the ready judge does not answer: {error.strerror or error}")
    try:
        greeting = _greeting(connection, device)
    except (EOFError, OSError, ValueError):
        greeting = Refusal(reason="the ready judge does not answer")
    except BaseException:
        connection.close()
        raise
    if isinstance(greeting, Welcome):
        return connection, greeting
    connection.close()
    return Unready(greeting.reason)


def _greeting(connection: socket.socket, device: DeviceKind) -> Greeting:
    _send(connection, Hello(identity=identity(), device=device))
    return greetings.decode(read_message(connection.fileno(), MOST_REPLY_BYTES, _GREETING_S))


def _result(connection: socket.socket, order: Order, on_stage: Callable[[Stage], None]) -> Graded | NotGraded | Unready:
    try:
        _send(connection, order)
        while isinstance(answer := answers.decode(read_message(connection.fileno(), MOST_REPLY_BYTES)), Stage):
            on_stage(answer)
    except (EOFError, OSError, ValueError):
        return Unready("the ready judge ended during the grade")
    return Unready(answer.reason) if isinstance(answer, Refusal) else answer


def _ask(question: AskStatus | AskStop) -> socket.socket:
    """Connect and ask. Raises UsageError if no ready judge runs."""
    try:
        with socket_folder.opened() as folder:
            connection = socket_folder.connect(folder, _GREETING_S)
    except (FileNotFoundError, ConnectionRefusedError):
        path = socket_folder.folder_path()
        raise UsageError(f"no ready judge runs: nothing listens in {path}", hint="start one: warpgrade serve") from None
    except OSError as error:
        raise InfraError(f"the ready judge does not answer: {error.strerror or error}") from None
    _send(connection, question)
    return connection


def _send(connection: socket.socket, message: Record) -> None:
    write_message(connection.fileno(), msgspec.json.encode(message))
