"""Gate in front of all routes: token, size and number of requests. Nothing of a body is read before the gate.

Without a valid token every path has the same response, except `/healthz`, which tells only that the server lives.
"""

import asyncio
import time
from collections import Counter

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from evaluator.service.messages import MOST_BODY_BYTES, Refusal
from evaluator.service.metrics import Metrics
from evaluator.service.tokens import Tokens

CLIENT = "warpgrade.client"
"""Key of the client's name in the scope of a request."""
STILL_VALID = "warpgrade.still_valid"
"""Key of a function in the scope: whether the token is still valid, for responses that last."""
HEALTH = "/healthz"
MOST_REQUESTS = 200
"""Limit of concurrent requests of a client, event streams included."""
_MOST_DISCARDED_BYTES = 4 << 20
_DISCARD_S = 2.0
_Headers = list[tuple[bytes, bytes]]


class Gate:
    """ASGI application that lets clients with a token through to `inner`."""

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
        headers = dict(scope["headers"])
        authorization = headers.get(b"authorization", b"")
        client = self._client(authorization)
        if client is None:
            extra = [(b"www-authenticate", b"Bearer")]
            await self._refuse(401, Refusal("a bearer token is required"), receive, send, extra)
        elif _declared_bytes(headers) > MOST_BODY_BYTES:
            await self._refuse(413, too_large(), receive, send)
        elif self._requests[client] >= MOST_REQUESTS:
            refusal = Refusal(f"more than {MOST_REQUESTS} requests at a time", "wait for earlier requests")
            await self._refuse(429, refusal, receive, send, [(b"retry-after", b"1")])
        else:
            scope[CLIENT] = client
            scope[STILL_VALID] = lambda: self._client(authorization) == client
            await self._let_in(client, scope, receive, send)

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
        self, status: int, refusal: Refusal, receive: Receive, send: Send, extra: _Headers | None = None
    ) -> None:
        """Send a refusal, then end the connection; the body of the request is never kept."""
        self._metrics.refused(status)
        content = msgspec.json.encode(refusal)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
            *(extra or []),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content, "more_body": True})
        await _discard(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def too_large() -> Refusal:
    """Return the refusal of a large body."""
    return Refusal(f"the body is larger than {MOST_BODY_BYTES >> 20} MiB", "a submission has at most 4 MiB of text")


def _declared_bytes(headers: dict[bytes, bytes]) -> int:
    """Return the declared length of the body. A body without a length is counted while it is read."""
    declared = headers.get(b"content-length", b"0")
    return int(declared) if declared.isdigit() else 0


async def _discard(receive: Receive) -> None:
    """Drop some of the body, for a short time: a client that still sends would lose the response at an early close."""
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
