"""The server as a process: the door for clients, the work behind the door, signals and the end."""

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import uvicorn
from starlette.types import ASGIApp

from evaluator.service.connections import LimitedConnection

_KEEP_ALIVE_S = 30
_LEAVE_S = 10


class Work(Protocol):
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
    work: Work
    has_results: bool


class Program:
    """Server of a door."""

    def __init__(self, door: Door, tell: Callable[[str], None]) -> None:
        """Serve at `door`; `tell` prints a line."""
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
        self._door = door
        self._tell = tell
        self._server = _Uvicorn(
            uvicorn.Config(
                door.application,
                http=door.connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_LEAVE_S,
            )
        )
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
