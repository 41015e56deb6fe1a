"""Access control of all routes: token, size and number of requests, before any part of a body is read.

Without a valid token every path has the same response, except `/healthz` with the state of the server.
"""

import asyncio
import time
from collections import Counter

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from evaluator.service.messages import MOST_BODY_BYTES, RequestRefused, too_large
from evaluator.service.metrics import Metrics
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
_Headers = list[tuple[bytes, bytes]]


class AccessControl:
    """ASGI application: requests with a token reach `inner`."""

    def __init__(self, inner: ASGIApp, tokens: Tokens, metrics: Metrics) -> None:
        self._inner = inner
        self._tokens = tokens
        self._metrics = metrics
        self._requests: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            return
        if scope["path"] == HEALTH:
            await self._inner(scope, receive, send)
            return
        authorization = _only_value(scope["headers"], b"authorization")
        client = self._client(authorization)
        if client is None:
            extra = [(b"www-authenticate", b"Bearer")]
            refused = RequestRefused(
                401, "a known bearer token is required", "the operator makes one: warpgrade token CLIENT"
            )
            await self._refuse(refused, receive, send, extra)
        elif _declared_bytes(scope["headers"]) > MOST_BODY_BYTES:
            await self._refuse(too_large(), receive, send)
        elif self._requests[client] >= (most := self._most_requests()):
            refused = RequestRefused(429, f"more than {most} requests at a time", "wait for earlier requests")
            await self._refuse(refused, receive, send, [(b"retry-after", b"1")])
        else:
            scope[CLIENT] = client
            await self._let_in(client, scope, receive, send)

    def _most_requests(self) -> int:
        return min(MOST_REQUESTS, 1 + (MOST_CONNECTIONS - self._requests.total()) // 4)

    async def _let_in(self, client: str, scope: Scope, receive: Receive, send: Send) -> None:
        self._requests[client] += 1
        try:
            await self._inner(scope, receive, send)
        finally:
            self._requests[client] -= 1
            if not self._requests[client]:
                del self._requests[client]

    def _client(self, authorization: bytes) -> str | None:
        kind, _, token = authorization.decode("latin-1").partition(" ")
        return self._tokens.client_of(token.strip()) if kind.lower() == "bearer" else None

    async def _refuse(
        self, refused: RequestRefused, receive: Receive, send: Send, extra: _Headers | None = None
    ) -> None:
        """Send a refusal, then end the connection; the body of the request is never kept."""
        self._metrics.refused(refused.status)
        content = msgspec.json.encode(refused.refusal)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
            *(extra or []),
        ]
        await send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await send({"type": "http.response.body", "body": content, "more_body": True})
        await _discard(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _only_value(headers: _Headers, header_name: bytes) -> bytes:
    """Return the value of a header; empty for no header and for two: a proxy may have checked the other value."""
    values = [value for name, value in headers if name == header_name]
    return values[0] if len(values) == 1 else b""


def _declared_bytes(headers: _Headers) -> int:
    """Return the declared length of the body. A body without a length is counted during reading."""
    declared = _only_value(headers, b"content-length")
    return int(declared) if declared.isdigit() else 0


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
