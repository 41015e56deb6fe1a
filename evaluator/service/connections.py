"""HTTP connections with limits of time and number, without chunked bodies.

A chunk of one byte costs the server as much as a chunk of 64 KiB, before any token is known. A client that sends or
reads nothing loses the connection. At the limit of connections, a new connection replaces the
oldest one without a request of a client with a token, so that strangers cannot keep clients out.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from evaluator.serve.socket_folder import peer_uid
from evaluator.service.messages import RequestRefused

CLIENT = "warpgrade.client"
"""Key of the client's name in the scope of a request."""
MOST_CONNECTIONS = 1_000
HEAD_S = 10.0
"""Time limit for the head of a request, from its first byte or from the start of the connection."""
STALL_S = 30.0
"""Time limit for a client to read any part of a response."""
_LEAVE_S = 2.0
"""Time between a refusal and the end of the connection: at an early end, a sending client would lose the refusal."""
_MOST_HEAD_BYTES = 64 << 10
_MOST_LOCAL = 200
"""Limit of connections on the Unix socket: more would take more descriptors than a process may open by default."""


class LimitedConnection(H11Protocol):
    """Connection of uvicorn with time limits for the head of a request, and for a reader that reads nothing."""

    made_s: float
    _head_limit: "_Limit"
    _stall_limit: "_Limit"

    def connection_made(self, transport: Any) -> None:
        """Start the time limit of the first head. Close a connection beyond the limit."""
        super().connection_made(transport)
        self.conn = _Conversation(h11.SERVER, _MOST_HEAD_BYTES)
        self.made_s = self.loop.time()
        self._head_limit, self._stall_limit = _Limit(self.loop), _Limit(self.loop)
        self._head_limit.start(HEAD_S, transport.abort)
        if len(self.connections) > self._most_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all time limits."""
        super().connection_lost(exc)
        self._head_limit.cancel()
        self._stall_limit.cancel()

    def data_received(self, data: bytes) -> None:
        """Pass data on. Between two requests, data is the begin of a head."""
        try:
            super().data_received(data)
        except h11.ProtocolError:
            # uvicorn responds to an invalid body, and fails where another response has begun.
            self.transport.abort()
            return
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self._head_limit.cancel()
        else:
            self._head_limit.start(HEAD_S, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is no HTTP, or has a chunked body, and read nothing more."""
        assert isinstance(self.conn, _Conversation)  # noqa: S101 - for the type checker
        if not self.conn.is_chunked:
            super().send_400_response(msg)
            return
        refused = RequestRefused(411, "the body has no Content-Length", "send the body in one piece, with its length")
        content = msgspec.json.encode(refused.refusal)
        headers = [("content-type", "application/json"), ("content-length", str(len(content))), ("connection", "close")]
        for event in (
            h11.Response(status_code=refused.status, headers=headers),
            h11.Data(data=content),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.pause_reading()
        self.loop.call_later(_LEAVE_S, self.transport.abort)

    @property
    def _most_connections(self) -> int:
        return MOST_CONNECTIONS

    def _make_room(self) -> None:
        """Close the oldest connection without a client's request; this connection, if all have one."""
        idle = [peer for peer in self.connections if isinstance(peer, LimitedConnection) and peer.is_idle]
        min(idle, key=lambda peer: peer.made_s, default=self).transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open and has no request of a client with a token."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        is_served = cycle is not None and not cycle.response_complete and CLIENT in cycle.scope
        return not is_served and not self.transport.is_closing()

    def pause_writing(self) -> None:
        """Start the time limit of a reader."""
        super().pause_writing()
        self._stall_limit.start(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the time limit of a reader."""
        super().resume_writing()
        self._stall_limit.cancel()


class LocalConnection(LimitedConnection):
    """Connection on the Unix socket. Another user's connection, as reported by the kernel, ends before any byte."""

    def connection_made(self, transport: Any) -> None:
        """Begin the connection, or end it."""
        super().connection_made(transport)
        if peer_uid(transport.get_extra_info("socket")) != os.geteuid():
            transport.abort()

    @property
    def _most_connections(self) -> int:
        return _MOST_LOCAL


class _Conversation(h11.Connection):
    """The state of a connection; a request with a chunked body is an error."""

    is_chunked = False

    def next_event(self) -> Any:
        """Return the next event. Raises RemoteProtocolError for a chunked body, whose chunks are never looked at."""
        event = super().next_event()
        if isinstance(event, h11.Request) and any(name == b"transfer-encoding" for name, _ in event.headers):
            self.is_chunked = True
            raise h11.RemoteProtocolError("a chunked body")
        return event


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
