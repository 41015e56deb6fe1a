"""Bodies of requests: limits of size, time, number and memory while clients send."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from evaluator.service.documents.messages import MOST_BODY_BYTES, RequestRefused, too_large
from evaluator.service.turns import Turns

BODY_S = 60.0
"""Time limit for a client to send a body."""
LARGE_BYTES = 256 << 20
"""Limit of the counted bytes of all bodies in memory."""
_SMALL_BYTES = 64 << 10
"""Uncounted first bytes of each body: small submissions pass beside any number of large bodies."""


class Bodies:
    """Bodies of all clients in memory."""

    def __init__(self) -> None:
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
                    if len(body) + len(part) > MOST_BODY_BYTES:
                        raise too_large()
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
