"""Large texts in memory: bodies of requests, with limits of size, time and number, and responses with cards."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from evaluator.service.messages import MOST_BODY_BYTES, RequestRefused, too_large

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
    """A large JSON text, sent in parts as fast as the client reads.

    As a whole, the text would stay in memory after the end of the request, and a slow reader could not be told from a
    client without any progress.
    """

    media_type = "application/json"

    def __init__(self, content: bytes, context: AsyncExitStack) -> None:
        """Store the text; `context` is closed after the last part."""
        super().__init__(content)
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - of the base class
        """Send the response."""
        async with self._context:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            for start in range(0, len(self.body), _PART_BYTES):
                part = bytes(self.body[start : start + _PART_BYTES])
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
