"""Limits of requests: token, size and number before any part of a body is read, then the large texts in memory.

Without a valid token every path has the same response, except `/healthz` with the state of the server.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from evaluator.service.messages import MOST_BODY_BYTES, RequestRefused, too_large
from evaluator.service.server import CLIENT, MOST_CONNECTIONS
from evaluator.service.tokens import Tokens

HEALTH = "/healthz"
MOST_REQUESTS = 200
"""Limit of concurrent requests of a client.

A client may also have at most a quarter of the connections that the requests of all clients leave, so that five clients
with as many waiting requests as they may have do not keep out a sixth.
"""
_MOST_DISCARDED_BYTES = 4 << 20
_DISCARD_S = 2.0
_HEADERS_OF = {401: [(b"www-authenticate", b"Bearer")], 429: [(b"retry-after", b"1")]}
"""Headers of a refusal beside those of every refusal, by status."""


class AccessControl:
    """ASGI application: requests with a token reach `inner`."""

    def __init__(self, inner: ASGIApp, tokens: Tokens, on_refused: Callable[[int], None]) -> None:
        """Let in requests with a token of `tokens`; `on_refused` is called with the HTTP status of each refusal."""
        self._inner = inner
        self._tokens = tokens
        self._on_refused = on_refused
        self._requests: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            return
        if scope["path"] == HEALTH:
            await self._inner(scope, receive, send)
            return
        try:
            client = scope[CLIENT] = self._client_of(Headers(scope=scope))
        except RequestRefused as refused:
            await self._refuse(refused, receive, send)
            return
        self._requests[client] += 1
        try:
            await self._inner(scope, receive, send)
        finally:
            self._requests[client] -= 1
            if not self._requests[client]:
                del self._requests[client]

    def _client_of(self, headers: Headers) -> str:
        """Return the client of a request. Raises RequestRefused for a request that is not let in."""
        authorization = headers.getlist("authorization")
        # Of two values, a proxy may have checked the other.
        kind, _, token = authorization[0].partition(" ") if len(authorization) == 1 else ("", "", "")
        client = self._tokens.client_of(token.strip()) if kind.lower() == "bearer" else None
        if client is None:
            hint = "the operator makes one: warpgrade token CLIENT"
            raise RequestRefused(401, "a known bearer token is required", hint)
        # h11 has checked the number. A body without a length is counted during reading.
        if int(headers.get("content-length", "0")) > MOST_BODY_BYTES:
            raise too_large()
        most = min(MOST_REQUESTS, 1 + (MOST_CONNECTIONS - self._requests.total()) // 4)
        if self._requests[client] >= most:
            raise RequestRefused(429, f"more than {most} requests at a time", "wait for earlier requests")
        return client

    async def _refuse(self, refused: RequestRefused, receive: Receive, send: Send) -> None:
        """Send a refusal, then end the connection; the body of the request is never kept."""
        self._on_refused(refused.status)
        content = msgspec.json.encode(refused.refusal)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
            *_HEADERS_OF.get(refused.status, ()),
        ]
        await send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await send({"type": "http.response.body", "body": content, "more_body": True})
        await _discard(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard(receive: Receive) -> None:
    """Drop some of the body, for a short time: at an early close, a sending client would lose the response."""
    until_s, dropped = time.monotonic() + _DISCARD_S, 0
    try:
        while dropped < _MOST_DISCARDED_BYTES:
            async with asyncio.timeout(max(0.0, until_s - time.monotonic())):
                message = await receive()
            dropped += len(message.get("body", b""))
            if not message.get("more_body", False):
                return
    except TimeoutError:
        return


BODY_S = 60.0
"""Time limit for a client to send a body."""
LARGE_BYTES = 256 << 20
"""Limit of the counted bytes of all bodies in memory."""
OF_A_CLIENT = 8
"""Limit of concurrent turns of a client; further requests wait."""
_PART_BYTES = 64 << 10
_SMALL_BYTES = 64 << 10
"""Uncounted first bytes of each body: small submissions pass beside any number of large bodies."""


class Turns:
    """Turns of all clients; a client beyond the limit waits for the client's earlier requests."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn of the client, and hold the turn until the exit of the context."""
        async with self._turns.setdefault(client, asyncio.Semaphore(OF_A_CLIENT)):
            yield


class Bodies:
    """Bodies of all clients in memory."""

    def __init__(self, most_bytes: int = MOST_BODY_BYTES) -> None:
        """Allow `most_bytes` for a body."""
        self._most_bytes = most_bytes
        self._turns = Turns()
        self._counted_bytes = 0

    @asynccontextmanager
    async def read(self, client: str, request: Request) -> AsyncIterator[bytearray]:
        """Return the body of a request. The body counts as memory until the exit of the context.

        Raises:
            RequestRefused: the body is too large or too slow, the memory is full, or the client has left.
        """
        async with self._turns.turn(client):
            body = bytearray()
            try:
                await self._receive(request, body)
                yield body
            finally:
                self._counted_bytes -= _counted_bytes(body)

    async def _receive(self, request: Request, body: bytearray) -> None:
        try:
            async with asyncio.timeout(BODY_S):
                async for part in request.stream():
                    if len(body) + len(part) > self._most_bytes:
                        raise too_large(self._most_bytes)
                    before = _counted_bytes(body)
                    body += part
                    self._counted_bytes += _counted_bytes(body) - before
                    if self._counted_bytes > LARGE_BYTES:
                        raise RequestRefused(429, "the service receives too many large bodies", "submit again later")
        except TimeoutError:
            raise RequestRefused(408, f"the body was not complete after {BODY_S:.0f} s") from None
        except ClientDisconnect:
            raise RequestRefused(400, "the client left before the end of the body") from None


def _counted_bytes(body: bytearray) -> int:
    return max(0, len(body) - _SMALL_BYTES)


class PartsResponse(Response):
    """A large text, sent in parts as fast as the client reads.

    As a whole, the text would stay in memory after the end of the request, and a slow reader could not be told from a
    client without any progress.
    """

    def __init__(
        self, content: bytes, media_type: str, context: AbstractAsyncContextManager[object] | None = None
    ) -> None:
        """Store the text; `context` is closed after the last part."""
        super().__init__(content, media_type=media_type)
        self._context = context or nullcontext()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - of the base class
        """Send the response."""
        async with self._context:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for start in range(0, len(self.body), _PART_BYTES):
                part = bytes(self.body[start : start + _PART_BYTES])
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
