"""Endpoint of the judge-runner socket: complete frames, file descriptors, and timeouts."""

import array
import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Sequence

import msgspec

from evaluator.protocol.frames.bounds import HEAD_BYTES, MAX_FRAME_BYTES, most_bytes_of_ours
from evaluator.protocol.frames.values import Frame

MAX_DESCRIPTORS = 5
_LENGTH_BYTES = 4
_LEAST_TIMEOUT_S = 0.001  # Zero would select non-blocking mode, with an exception of its own.


class FrameError(Exception):
    """Protocol violation by the peer: an oversized or undecodable frame, or an unexpected type."""


class Closed(Exception):
    """The peer has closed the connection."""


class DeadlinePassed(Exception):
    """No complete frame arrived before the deadline."""


class Channel:
    """Endpoint of the connection. Not thread-safe."""

    def __init__(
        self, sock: socket.socket, *, receives: type | object, most_bytes: Callable[[bytes], int] = most_bytes_of_ours
    ) -> None:
        """Use `sock`. Accept frames of the union `receives`; `most_bytes` maps a frame's head to its size limit."""
        self._socket = sock
        self._most_bytes = most_bytes
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(receives)
        self._descriptors: list[int] = []
        self._begun = bytearray()

    @property
    def number(self) -> int:
        """Descriptor of the socket."""
        return self._socket.fileno()

    def send(self, frame: msgspec.Struct, descriptors: Sequence[int] = (), timeout_s: float | None = None) -> None:
        """Send one frame.

        Raises Closed when the peer is gone, DeadlinePassed when the peer does not read within `timeout_s`.
        """
        body = self._encoder.encode(frame)
        if len(body) > MAX_FRAME_BYTES:
            raise FrameError(f"a frame of {len(body)} bytes")
        data = memoryview(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
        self._socket.settimeout(None if timeout_s is None else max(timeout_s, _LEAST_TIMEOUT_S))
        try:
            sent = socket.send_fds(self._socket, [data], list(descriptors)) if descriptors else 0
            self._socket.sendall(data[sent:])
        except TimeoutError:
            raise DeadlinePassed from None
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error
        finally:
            with contextlib.suppress(OSError):
                self._socket.settimeout(None)

    def receive(self, timeout_s: float | None = None) -> Frame:
        """Wait for one frame.

        Raises DeadlinePassed after `timeout_s`, Closed at the end of the stream, FrameError for invalid frames. The
        deadline covers the whole frame, so a sender cannot extend the wait by sending single bytes. After
        DeadlinePassed, the next call continues with the same frame.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._read(_LENGTH_BYTES, deadline)
        length = int.from_bytes(self._begun[:_LENGTH_BYTES], "big")
        if length <= MAX_FRAME_BYTES:
            self._read(_LENGTH_BYTES + min(length, HEAD_BYTES), deadline)
        head = self._begun[_LENGTH_BYTES : _LENGTH_BYTES + HEAD_BYTES]
        if length > min(MAX_FRAME_BYTES, self._most_bytes(bytes(head))):
            raise FrameError(f"a frame of {length} bytes")
        self._read(_LENGTH_BYTES + length, deadline)
        body, self._begun = memoryview(self._begun)[_LENGTH_BYTES:], bytearray()
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise FrameError(str(error)) from None

    def readable(self, within_s: float) -> bool:
        """Return whether data or the end of the stream becomes readable within `within_s`."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(within_s * 1000))

    def take_descriptors(self) -> list[int]:
        """Return the descriptors received so far. The caller closes them."""
        taken, self._descriptors = self._descriptors, []
        return taken

    def close(self) -> None:
        """Close the socket and all untaken descriptors."""
        for descriptor in self.take_descriptors():
            os.close(descriptor)
        self._socket.close()

    def _read(self, count: int, deadline: float | None) -> None:
        """Read until `count` bytes of the current frame are there."""
        while len(self._begun) < count:
            self._begun += self._read_some(min(count - len(self._begun), 1 << 20), deadline)

    def _read_some(self, count: int, deadline: float | None) -> bytes:
        left_s = None if deadline is None else deadline - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise DeadlinePassed
        self._socket.settimeout(left_s)
        space = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, ancillary, flags, _ = self._socket.recvmsg(count, space, socket.MSG_CMSG_CLOEXEC)
        except TimeoutError:
            raise DeadlinePassed from None
        except ConnectionResetError:
            raise Closed from None
        finally:
            with contextlib.suppress(OSError):
                self._socket.settimeout(None)
        self._keep_descriptors(ancillary, complete=not flags & socket.MSG_CTRUNC)
        if not data:
            raise Closed
        return data

    def _keep_descriptors(self, ancillary: list[tuple[int, int, bytes]], *, complete: bool) -> None:
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                self._descriptors.extend(numbers)
        if len(self._descriptors) > MAX_DESCRIPTORS or not complete:
            for descriptor in self.take_descriptors():
                os.close(descriptor)
            raise FrameError("too many descriptors")
