"""What judge, starter and warden say to each other: one msgpack record for each packet, descriptors beside it.

All three are trusted; the runner has no end of these sockets.
"""

import os
import select
import signal
import socket
from collections.abc import Sequence
from enum import Enum

import msgspec

from evaluator.isolation.files import FileView
from evaluator.isolation.limits import Limits
from evaluator.isolation.machine import Machine, Walls
from evaluator.isolation.privileges import Identities

_PACKET_BYTES_AT_MOST = 128 << 10
_DESCRIPTORS_AT_MOST = 3


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of every message."""


class Setup(Message, frozen=True, kw_only=True):
    """Judge to starter, once: what to import before the first runner is asked for."""

    preload: tuple[str, ...]
    extra_sys_path: tuple[str, ...]


class Ready(Message, frozen=True, kw_only=True):
    """Starter to judge, once: everything is imported."""

    machine: Machine


class Spawn(Message, frozen=True, kw_only=True):
    """Judge to starter: start a runner that calls `entry` ("module:function"), or executes `argv`.

    Beside it: the warden's socket, the output pipe and, for an `entry`, the runner's socket.
    """

    walls: Walls
    identities: Identities | None
    limits: Limits
    files: FileView
    environment: dict[str, str]
    entry: str | None = None
    argv: tuple[str, ...] = ()


class Created(Message, frozen=True, kw_only=True):
    """Supervisor to judge. Beside it: a descriptor of the supervisor's process and one of the warden's."""


class Started(Message, frozen=True, kw_only=True):
    """Warden to judge: the walls stand and untrusted code is about to run.

    Beside it, where the runner has a view of files of its own: what becomes readable when its files are gone.
    """


class Failed(Message, frozen=True, kw_only=True):
    """Supervisor or warden to judge: no runner was made."""

    reason: str


class Exited(Message, frozen=True, kw_only=True):
    """Warden to judge: the runner's first process has ended; `status` is that of waitpid."""

    status: int
    out_of_memory: bool


class Frozen(Message, frozen=True, kw_only=True):
    """Warden to judge: every process was sent a stop; `settled` if all have taken it, with all of their threads.

    Where /proc is not the runner's own (`own-proc` is missing) this is known of its first process alone.
    """

    settled: bool


class Thawed(Message, frozen=True, kw_only=True):
    """Warden to judge: every process goes on."""


class Command(bytes, Enum):
    """Judge to warden. Hanging up means: kill everything."""

    FREEZE = b"F"
    THAW = b"T"


class HungUp(Exception):
    """The other side closed its socket."""


AnyMessage = Setup | Ready | Spawn | Created | Started | Failed | Exited | Frozen | Thawed
_decoder = msgspec.msgpack.Decoder(AnyMessage)
_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """Write `message` as one packet."""
    return _encoder.encode(message)


def send(sock: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send `message`, and copies of `descriptors` with it."""
    socket.send_fds(sock, [encode(message)], list(descriptors), socket.MSG_NOSIGNAL)


def receive(sock: socket.socket) -> tuple[AnyMessage, list[int]]:
    """Wait for a message. Raises HungUp when the other side is gone."""
    packet, descriptors, _, _ = socket.recv_fds(
        sock, _PACKET_BYTES_AT_MOST, _DESCRIPTORS_AT_MOST, socket.MSG_CMSG_CLOEXEC
    )
    if not packet:
        raise HungUp
    return _decoder.decode(packet), descriptors


def ready(source: socket.socket | int, timeout_s: float) -> bool:
    """Wait until `source` can be read, or has ended, at most `timeout_s`. Unlike select, for any descriptor."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


def exit_signal(status: int) -> str | None:
    """Name the signal of a waitpid status; None if the process exited by itself.

    >>> exit_signal(11), exit_signal(256)
    ('SIGSEGV', None)
    """
    if not os.WIFSIGNALED(status):
        return None
    number = os.WTERMSIG(status)
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"
