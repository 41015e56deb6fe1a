"""HTTP connections with time limits: a client that sends or reads nothing loses the connection."""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_S = 10.0
"""Time limit for the head of a request, from its first byte or from the start of the connection."""
STALL_S = 30.0
"""Time limit for a client to read any part of a response."""


class LimitedConnection(H11Protocol):
    """Connection of uvicorn with time limits for the head of a request, and for a reader that reads nothing."""

    _head_limit: "_Limit"
    _stall_limit: "_Limit"

    def connection_made(self, transport: Any) -> None:
        """Start the time limit of the first head."""
        super().connection_made(transport)
        self._head_limit, self._stall_limit = _Limit(self.loop), _Limit(self.loop)
        self._head_limit.start(HEAD_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all time limits."""
        super().connection_lost(exc)
        self._head_limit.cancel()
        self._stall_limit.cancel()

    def data_received(self, data: bytes) -> None:
        """Pass data on. Between two requests, data is the begin of a head."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self._head_limit.cancel()
        else:
            self._head_limit.start(HEAD_S, self.transport.abort)

    def pause_writing(self) -> None:
        """Start the time limit of a reader."""
        super().pause_writing()
        self._stall_limit.start(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the time limit of a reader."""
        super().resume_writing()
        self._stall_limit.cancel()


class _Limit:
    """A time limit of a connection, off or on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def start(self, limit_s: float, end: Callable[[], None]) -> None:
        """Call `end` after the time, unless the limit is on already."""
        if self._timer is None:
            self._timer = self._loop.call_later(limit_s, end)

    def cancel(self) -> None:
        """Switch the limit off."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
