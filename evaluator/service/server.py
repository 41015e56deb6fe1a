"""The server as a process: a door, connections with limits, work, signals and the end.

A chunk of one byte costs the server as much as a chunk of 64 KiB, before any token is known. A client that sends or
reads nothing loses the connection. At the limit of connections, a new connection replaces the
oldest one without a request of a client with a token, so that strangers cannot keep clients out.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import h11
import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from evaluator.api.ready_socket import peer_uid
from evaluator.errors import UsageError
from evaluator.service.messages import RequestRefused

CLIENT = "warpgrade.client"
"""Key of the client's name in the scope of a request."""
MOST_CONNECTIONS = 1_000
HEAD_S = 10.0
"""Time limit for the head of a request, from its first byte or from the start of the connection."""
STALL_S = 30.0
"""Time limit for a client to read any part of a response."""
_REFUSED_S = 2.0
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
        self.loop.call_later(_REFUSED_S, self.transport.abort)

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


class Address(NamedTuple):
    """Address to listen on. Port 0 lets the system choose."""

    host: str
    port: int


@contextlib.contextmanager
def listening(address: Address, hint: str) -> Iterator[socket.socket]:
    """Listen on an address. Raises UsageError, with `hint` for a port that cannot be used."""
    try:
        family, kind, protocol, _, socket_address = socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sends small parts at once (TCP_NODELAY) only for sockets with the protocol's number.
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"cannot resolve {address.host}: {error.strerror}") from None
    with listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(socket_address)
            listener.listen(socket.SOMAXCONN)
        except OSError as error:
            raise UsageError(f"cannot listen on {address.host}:{address.port}: {error.strerror}", hint=hint) from None
        yield listener


_KEEP_ALIVE_S = 30
_LEAVE_S = 10


def config_of(application: ASGIApp, connection: type[LimitedConnection]) -> uvicorn.Config:
    """Return the settings of uvicorn for a door, and silence its log."""
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
    return uvicorn.Config(
        application,
        interface="asgi3",
        http=connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_LEAVE_S,
    )


class GradeLoop(Protocol):
    """Grades behind a door. All methods belong to the event loop of the server."""

    async def run(self) -> None:
        """Grade until `stop`; return after the last grade in progress."""

    def stop(self) -> None:
        """Begin no further grade."""

    def abort(self) -> None:
        """End also the grades in progress."""


class Door(NamedTuple):
    """A listening socket, the application for its clients, the class of connections, and the work behind the door.

    With `has_results`, clients receive results only on the connection of a request: the door stays open until the
    last grade has ended.
    """

    listener: socket.socket
    application: ASGIApp
    connection: type[LimitedConnection]
    work: GradeLoop
    has_results: bool


class Program:
    """Server of a door."""

    def __init__(self, door: Door, tell: Callable[[str], None]) -> None:
        """Serve at `door`; `tell` prints a line."""
        self._door = door
        self._tell = tell
        self._server = _Uvicorn(config_of(door.application, door.connection))
        self._signals = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT or `stop`. Raises the error of failed work, after the end of the door."""
        asyncio.run(self._serve())

    def stop(self) -> None:
        """End the server like a first signal. May be called from another thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # The server has ended.
                self._loop.call_soon_threadsafe(self._end)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():  # Python receives no signals in other threads.
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._heed_signal)
        working = asyncio.create_task(self._door.work.run())
        working.add_done_callback(lambda _: self._close_door())
        try:
            await self._server.serve(sockets=[self._door.listener])
        finally:
            self._door.work.stop()
            await working

    def _heed_signal(self) -> None:
        self._signals += 1
        if self._signals == 1:
            self._tell("ending after the grades in progress; a second signal ends them too")
            self._end()
        else:
            self._server.force_exit = True
            self._door.work.abort()

    def _end(self) -> None:
        self._door.work.stop()
        if not self._door.has_results:
            self._close_door()

    def _close_door(self) -> None:
        self._server.should_exit = True


class _Uvicorn(uvicorn.Server):
    """Server of uvicorn that leaves signals to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signal."""
        yield


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Whether a record tells of a fault: uvicorn also logs a traceback of each request cut short by the end."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)
