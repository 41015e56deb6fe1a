"""Messages between judge, starter, supervisor and warden: a msgpack record per packet, with descriptors attached.

All four are trusted; the runner has no end of these sockets.
"""

import os
import select
import signal
import socket
from collections.abc import Sequence
from enum import Enum

import msgspec

from evaluator.sandbox.available_layers import Layers, Limits, Machine
from evaluator.sandbox.kernel.privileges import Identities
from evaluator.sandbox.visible_files import FileView

_PACKET_BYTES_AT_MOST = 128 << 10
_DESCRIPTORS_AT_MOST = 3


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of every message."""


class Setup(Message, frozen=True, kw_only=True):
    """Judge to starter, once: modules to import before the first runner is requested."""

    preload: tuple[str, ...]
    extra_sys_path: tuple[str, ...]


class Ready(Message, frozen=True, kw_only=True):
    """Starter to judge, once: all imports are done."""

    machine: Machine


class Preload(Message, frozen=True, kw_only=True):
    """Judge to starter: a module to import before the next runner. Without it, the runners work as well."""

    module: str


class Spawn(Message, frozen=True, kw_only=True):
    """Judge to starter: start a runner that calls `entry` ("module:function") or executes `argv`.

    Descriptors: the warden's socket, the output pipe and, for an `entry`, the runner's socket.
    """

    layers: Layers
    identities: Identities | None
    limits: Limits
    files: FileView
    environment: dict[str, str]
    entry: str | None = None
    argv: tuple[str, ...] = ()


class Created(Message, frozen=True, kw_only=True):
    """Supervisor to judge. Descriptors: pidfds of the supervisor and of the warden."""


class Started(Message, frozen=True, kw_only=True):
    """Warden to judge: all layers are in place and untrusted code is about to run.

    Descriptor, for a runner with a private view: becomes readable when the runner's in-memory files are freed.
    """


class NotStarted(Message, frozen=True, kw_only=True):
    """Supervisor or warden to judge: no runner was started."""

    reason: str


class Exited(Message, frozen=True, kw_only=True):
    """Warden to judge: the runner's first process has exited, with `status` as returned by waitpid."""

    status: int
    out_of_memory: bool


class Frozen(Message, frozen=True, kw_only=True):
    """Warden to judge: every process was sent SIGSTOP; `settled` if all their threads have stopped.

    Without a private view, and so without a /proc of the runner's own, `settled` describes the first process only.
    """

    settled: bool


class Thawed(Message, frozen=True, kw_only=True):
    """Warden to judge: every process continues."""


class Command(bytes, Enum):
    """Judge to warden. Hanging up means: kill every process."""

    FREEZE = b"F"
    THAW = b"T"


class HungUp(Exception):
    """The peer closed its socket."""


AnyMessage = Setup | Ready | Preload | Spawn | Created | Started | NotStarted | Exited | Frozen | Thawed
_decoder = msgspec.msgpack.Decoder(AnyMessage)
_encoder = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """Encode `message` as one packet."""
    return _encoder.encode(message)


def send(sock: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send `message` with copies of `descriptors`."""
    socket.send_fds(sock, [encode(message)], list(descriptors), socket.MSG_NOSIGNAL)


def receive(sock: socket.socket) -> tuple[AnyMessage, list[int]]:
    """Receive a message. Raises HungUp after the peer's end."""
    packet, descriptors, _, _ = socket.recv_fds(
        sock, _PACKET_BYTES_AT_MOST, _DESCRIPTORS_AT_MOST, socket.MSG_CMSG_CLOEXEC
    )
    if not packet:
        raise HungUp
    return _decoder.decode(packet), descriptors


def ready(source: socket.socket | int, timeout_s: float) -> bool:
    """Wait at most `timeout_s` until `source` is readable or closed. Works for any descriptor number, unlike select."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


def exit_signal(status: int) -> str | None:
    """Return the name of the signal in a waitpid status; None if the process exited by itself.

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
