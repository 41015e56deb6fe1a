"""HTTP server of a live page: only for local browsers, only GET, at a secret address.

Every local user and every web page in a browser can reach a port of 127.0.0.1. The secret in the path keeps other users
out. The check of the Host header keeps out web pages after a DNS rebinding to 127.0.0.1. Connections have the limits of
`evaluator/service/server.py`.
"""

import asyncio
import hmac
import re
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self

import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from evaluator.errors import WarpgradeError
from evaluator.service.gate import PartsResponse
from evaluator.service.server import CLIENT, Address, LimitedConnection, config_of, listening

_LOOPBACK = "127.0.0.1"
_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?", re.IGNORECASE)
"""With any port: a tunnel of SSH may have another."""
MOST_CONNECTIONS = 32
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


class ViewConnection(LimitedConnection):
    """Connection of a browser. Beyond the limit, the oldest connection without a request for the page makes room."""

    @property
    def _most_connections(self) -> int:
        return MOST_CONNECTIONS


class ViewServer:
    """Server on 127.0.0.1, as a context manager."""

    def __init__(self, live: Live, port: int, tell: Callable[[str], None]) -> None:
        """Listen on `port`; 0 selects a free port. `tell` prints a line about a fault.

        Raises:
            UsageError: the port cannot be used.
        """
        self.live = live
        self.secret = secrets.token_urlsafe(18)
        self._tell = tell
        self._open = ExitStack()
        hint = "name another port with --port, or omit --port for a free one"
        self._listener = self._open.enter_context(listening(Address(_LOOPBACK, port), hint))
        self.server_address: tuple[str, int] = self._listener.getsockname()
        self._server = uvicorn.Server(config_of(self._answer, ViewConnection))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def address(self) -> str:
        """Address of the page."""
        return f"http://{_LOOPBACK}:{self.server_address[1]}/{self.secret}/"

    def serve_forever(self) -> None:
        """Serve until `shutdown`. Raises KeyboardInterrupt after Ctrl-C."""
        self._server.run(sockets=[self._listener])

    def shutdown(self) -> None:
        """End the server soon. May be called from another thread."""
        self._server.should_exit = True

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            response = await self._response(Request(scope))
            response.headers.update(_HEADERS)
            await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        if request.method != "GET":
            return PlainTextResponse("Method Not Allowed\n", 405, {"Allow": "GET"})
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:
            return PlainTextResponse("The page has another address: see `warpgrade view`.\n", 403)
        requested = request.scope["raw_path"]
        page, version = (f"/{self.secret}/{name}".encode() for name in ("", "version"))
        is_page = hmac.compare_digest(requested, page)
        if not (is_page or hmac.compare_digest(requested, version)):
            return PlainTextResponse("Not found: `warpgrade view` printed the address of the page.\n", 404)
        request.scope[CLIENT] = ""  # The connection makes no room for others.
        try:
            if is_page:
                return PartsResponse(await asyncio.to_thread(self.live.page), media_type="text/html")
            return PlainTextResponse(await asyncio.to_thread(self.live.version))
        except WarpgradeError as error:
            return PlainTextResponse(f"{error.message}\n".encode("utf-8", "replace"), 503)
        except Exception as error:  # noqa: BLE001 - a surprise ends nothing
            self._tell(f"error: a request was not answered: {error!r}")
            return PlainTextResponse("Internal Server Error\n", 500)
