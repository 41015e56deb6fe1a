"""HTTP server of a live page: only for local browsers, only GET, at a secret address.

Every local user and every web page in a browser can reach a port of 127.0.0.1. The secret in the path keeps other users
out. The check of the Host header keeps out web pages after a DNS rebinding to 127.0.0.1. A connection without a
complete request is closed after a few seconds, or earlier if a further connection needs the place.
"""

import contextlib
import hmac
import io
import re
import secrets
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol

from evaluator.errors import UsageError, WarpgradeError

_LOOPBACK = "127.0.0.1"
_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?", re.IGNORECASE)
"""With any port: a tunnel of SSH may have another."""
_MOST_CONNECTIONS = 32
_PATIENCE_S = 10.0
_REQUEST_S = 5.0
"""Time limit of a whole request: rare bytes keep no place."""
_ROOM_S = 1.0
"""Time for the thread of a closed connection to end."""
_PIECE_BYTES = 1 << 16
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Live(Protocol):
    """Source of the page and the version."""

    def page(self) -> bytes:
        """Return the page."""

    def version(self) -> str:
        """Return a text; a changed page has a changed text."""


class ViewServer(socketserver.ThreadingTCPServer):
    """Server on 127.0.0.1. `serve_forever` returns after `shutdown`, or raises KeyboardInterrupt."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, live: Live, port: int, tell: Callable[[str], None]) -> None:
        """Listen on `port`; 0 selects a free port. `tell` prints a line about a fault.

        Raises:
            UsageError: the port cannot be used.
        """
        self.live = live
        self.secret = secrets.token_urlsafe(18)
        self._tell = tell
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._changing = threading.Lock()
        self._incomplete: dict[int, socket.socket] = {}  # in the order of arrival
        try:
            super().__init__((_LOOPBACK, port), _Handler)
        except OSError as error:
            hint = "name another port with --port, or omit --port for a free one"
            raise UsageError(f"cannot listen on {_LOOPBACK}:{port}: {error.strerror or error}", hint=hint) from error

    @property
    def address(self) -> str:
        """Address of the page."""
        return f"http://{_LOOPBACK}:{self.server_address[1]}/{self.secret}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread. Beyond the limit, the oldest connection without a request makes room."""
        if self._free.acquire(blocking=False) or (self._make_room() and self._free.acquire(timeout=_ROOM_S)):
            with self._changing:
                self._incomplete[id(request)] = request
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def _make_room(self) -> bool:
        """Close the oldest connection without a complete request. Return False without such a connection."""
        with self._changing:
            if not self._incomplete:
                return False
            oldest = self._incomplete.pop(next(iter(self._incomplete)))
            with contextlib.suppress(OSError):  # closed by the client
                oldest.shutdown(socket.SHUT_RDWR)
            return True

    def keep(self, request: socket.socket) -> None:
        """Keep a connection with a complete request until the answer is sent."""
        with self._changing:
            self._incomplete.pop(id(request), None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then make room for another connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.keep(request)
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
        """Print a surprise on a single line. A lost connection is no surprise."""
        error = sys.exception()
        if not isinstance(error, OSError):
            self._tell(f"error: a request was not answered: {error!r}")


class _RequestReader(io.RawIOBase):
    """Bytes of a connection, with a common time limit."""

    def __init__(self, connection: socket.socket, limit_s: float) -> None:
        self._connection = connection
        self._ends_s = time.monotonic() + limit_s

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Wait for bytes. Raises TimeoutError after the time limit."""
        left_s = self._ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._connection.settimeout(left_s)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """A single request on a connection."""

    server: ViewServer
    default_request_version = "HTTP/1.0"
    """Version before a request is read: an answer in HTTP/0.9 has no status."""

    def setup(self) -> None:
        """Read the request with a total time limit."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_RequestReader(self.connection, _REQUEST_S))

    def do_GET(self) -> None:
        """Answer the page, or the version."""
        self.server.keep(self.connection)
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:
            self._answer(HTTPStatus.FORBIDDEN, b"The page has another address: see `warpgrade view`.\n")
            return
        requested = self.path.partition("?")[0].encode("utf-8", "surrogatepass")
        page, version = (f"/{self.server.secret}/{name}".encode() for name in ("", "version"))
        try:
            if hmac.compare_digest(requested, page):
                self._answer(HTTPStatus.OK, self.server.live.page(), "text/html")
            elif hmac.compare_digest(requested, version):
                self._answer(HTTPStatus.OK, self.server.live.version().encode())
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"Not found: `warpgrade view` printed the address of the page.\n")
        except WarpgradeError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.message}\n".encode("utf-8", "replace"))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer an invalid request or another method. The base class would repeat text of the request."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self._answer(status, f"{status.phrase}\n".encode())

    def version_string(self) -> str:
        """Return the value of the header Server."""
        return "warpgrade"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's
        """Print nothing: a page asks for the version every two seconds."""

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain") -> None:
        self.close_connection = True
        self.server.keep(self.connection)
        self.connection.settimeout(_PATIENCE_S)
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        # The patience is that of one write: a page of megabytes may take longer through a tunnel.
        for start in range(0, len(body), _PIECE_BYTES):
            self.wfile.write(body[start : start + _PIECE_BYTES])
