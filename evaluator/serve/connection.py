"""A connection of the ready judge, in a separate thread: a grade, the status, or the end."""

import contextlib
import os
import select
import socket
import struct
import threading
import time
from typing import Protocol

import msgspec

from evaluator.batch.workers.framing import read_message, write_message
from evaluator.batch.workers.messages import Graded, NotGraded, Order, Stage
from evaluator.errors import WarpgradeError
from evaluator.records import Record
from evaluator.serve.call import ClientCall
from evaluator.serve.grades import Grades
from evaluator.serve.identity import Identity, difference
from evaluator.serve.protocol import (
    MOST_REQUEST_BYTES,
    AskStatus,
    AskStop,
    Hello,
    Refusal,
    Welcome,
    first_messages,
    orders,
)
from evaluator.serve.status import ServerStatus

_REQUEST_S = 30.0
_REPLY_S = 30
"""Time limit for a client to read a reply; a slower client counts as gone."""
_TIMEVAL = struct.Struct("@ll")


class Host(Protocol):
    """Interface of the server to a connection."""

    grades: Grades
    identity: Identity

    @property
    def is_ending(self) -> bool:
        """Whether the server accepts no further grade."""

    def status(self) -> ServerStatus:
        """Return the server's status."""

    def stop(self) -> None:
        """End the server after the current grades."""

    def wait_for_end(self) -> None:
        """Wait until the last grade has ended and no worker is left."""

    def began(self, call: ClientCall) -> None:
        """Count a grade in progress."""

    def ended(self, call: ClientCall, order: Order, result: Graded | NotGraded, wall_s: float) -> None:
        """Count a finished or abandoned grade."""


class Connection:
    """Connection of a client of the same user."""

    def __init__(self, host: Host, client: socket.socket) -> None:
        """Serve `client`; close the socket at the end of `serve`."""
        self._host = host
        self._client = client
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(_REPLY_S, 0))

    def serve(self) -> None:
        """Answer a request. An invalid request is refused, and a vanished client is no error."""
        with self._client, contextlib.suppress(OSError, EOFError):
            try:
                self._answer()
            except msgspec.DecodeError as error:
                self._send(Refusal(reason=f"the ready judge is of another version, or the message is invalid: {error}"))
            except ValueError as error:  # too long a message
                self._send(Refusal(reason=f"the ready judge refuses {error}"))

    def _answer(self) -> None:
        match first_messages.decode(self._read()):
            case AskStatus():
                self._send(self._host.status())
            case AskStop():
                self._host.stop()
                self._host.wait_for_end()
            case Hello() as hello:
                reply = self._greeting(hello)
                self._send(reply)
                if isinstance(reply, Welcome):
                    self._grade(orders.decode(self._read()))

    def _greeting(self, hello: Hello) -> Welcome | Refusal:
        if self._host.is_ending:
            return Refusal(reason="the ready judge is ending")
        if (reason := difference(self._host.identity, hello.identity)) is not None:
            return Refusal(reason=reason)
        try:
            return Welcome(pid=os.getpid(), at_once=self._host.grades.at_once(hello.device))
        except WarpgradeError as error:
            return Refusal(reason=f"the ready judge cannot use {hello.device.value}: {error.message}")

    def _grade(self, order: Order) -> None:
        if not order.options.is_sandboxed:  # An unconfined submission may change the processes of the next grade.
            self._send(Refusal(reason="the ready judge grades only in the sandbox"))
            return
        if self._host.is_ending:
            self._send(Refusal(reason="the ready judge is ending"))
            return
        call = ClientCall()
        ended, its_end = os.pipe()
        self._host.began(call)
        thread = threading.Thread(target=self._make, args=(order, call, its_end), name="grade", daemon=True)
        thread.start()
        try:
            if not self._stays_until(ended):
                call.abandon()
            thread.join()
        finally:
            os.close(ended)

    def _make(self, order: Order, call: ClientCall, its_end: int) -> None:
        started_s = time.monotonic()
        result: Graded | NotGraded = NotGraded(reason="the ready judge failed", again=True)
        try:
            result = self._host.grades.make(order, call, lambda stage: self._tell(stage, call))
            call.finish()
            self._tell(result, call)
        finally:
            self._host.ended(call, order, result, time.monotonic() - started_s)
            os.close(its_end)

    def _tell(self, reply: Stage | Graded | NotGraded, call: ClientCall) -> None:
        """Send a reply from the thread of the grade. A client counts as gone after the time limit for reading."""
        if call.is_abandoned:
            return
        try:
            self._send(reply)
        except OSError:  # Part of the message may be sent: nothing may follow.
            with contextlib.suppress(OSError):
                self._client.shutdown(socket.SHUT_RDWR)

    def _stays_until(self, ended: int) -> bool:
        """Wait for the end of the grade; return false as soon as the client has gone."""
        poll = select.poll()
        poll.register(ended, 0)  # the hang-up
        poll.register(self._client, select.POLLRDHUP)
        return ended in dict(poll.poll())

    def _read(self) -> bytes:
        return read_message(self._client.fileno(), MOST_REQUEST_BYTES, _REQUEST_S)

    def _send(self, message: Record) -> None:
        write_message(self._client.fileno(), msgspec.json.encode(message))
