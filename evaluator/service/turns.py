"""Turns of clients: how many large texts of a client the service holds in memory at the same time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

OF_A_CLIENT = 8
"""Limit of concurrent turns of a client; further requests wait."""
_PART_BYTES = 64 << 10


class Turns:
    """Turns of all clients; a client beyond the limit waits for the client's earlier requests."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Semaphore] = {}

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn of the client, and hold the turn until the exit of the context."""
        async with self._turns.setdefault(client, asyncio.Semaphore(OF_A_CLIENT)):
            yield


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
