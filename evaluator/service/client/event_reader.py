"""Thread of the client that reads the service's events, across lost connections and restarts of the service."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from evaluator.errors import InfraError, WarpgradeError
from evaluator.service.client.transport import BUSY, SILENCE_S, Attempts, Transport
from evaluator.service.documents.messages import Grade

if TYPE_CHECKING:
    import httpx


class EventReader:
    """Reader of a client's final grades: each grade once, in the order of their ends."""

    def __init__(
        self, transport: Transport, on_grade: Callable[[Grade], None], on_lost: Callable[[Exception], None]
    ) -> None:
        """Pass each final grade to `on_grade`, and the error after the end of the patience to `on_lost`."""
        self._transport = transport
        self._on_grade = on_grade
        self._on_lost = on_lost
        self._last: str | None = None
        self._socket: socket.socket | None = None
        self._first = threading.Event()
        self._error: Exception | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._read, name="remote-events", daemon=True)

    def start(self) -> None:
        """Start the thread; return when the service has sent the first event.

        Raises:
            UsageError: the service refuses the token.
            InfraError: the service is not reachable.
        """
        self._thread.start()
        self._first.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the connection and the thread."""
        self._closing = True
        connected = self._socket
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=1.0)

    def _read(self) -> None:
        attempts = Attempts(self._transport)
        while not self._closing:
            try:
                if self._read_stream():
                    attempts = Attempts(self._transport)
                attempts.pause("the event stream ended")
            except WarpgradeError as error:
                self._lose(error)
                return
            except Exception as error:  # noqa: BLE001 - callers wait for events
                self._lose(InfraError(f"the service's events cannot be read: {error}"))
                return

    def _lose(self, error: Exception) -> None:
        if not self._closing:
            self._error = error
            self._on_lost(error)
        self._first.set()

    def _read_stream(self) -> bool:
        """Read events until the connection ends; return whether any event arrived. Raises UsageError for a refusal."""
        import httpx

        headers = {} if self._last is None else {"Last-Event-ID": self._last}
        timeout = httpx.Timeout(SILENCE_S)
        arrived = False
        try:
            with self._transport.client.stream("GET", "/v1/events", headers=headers, timeout=timeout) as response:
                if response.status_code in BUSY:
                    return False
                if not response.is_success:
                    self._transport.accepted(response)
                self._socket = response.extensions["network_stream"].get_extra_info("socket")
                for name, number, document in _events(response):
                    if name == "grade":
                        self._on_grade(msgspec.json.decode(document, type=Grade))
                    self._last, arrived = number, True
                    self._first.set()
        except (httpx.TransportError, RuntimeError):  # RuntimeError: the client is closed
            return arrived
        finally:
            self._socket = None
        return arrived


def _events(response: "httpx.Response") -> Iterator[tuple[str, str, str]]:
    """Yield name, id and data of each event."""
    name, number, data = "", "", ""
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        match field:
            case "event":
                name = value
            case "id":
                number = value
            case "data":
                data = value
            case "" if not line and name:
                yield name, number, data
                name = ""
