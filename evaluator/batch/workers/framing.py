"""Messages as bytes after a length of four bytes, on a pipe or a stream socket.

The length is checked before anything is read, so no message takes more memory than the reader allows.
"""

import os
import select
import struct
import time

MOST_BYTES = 256 << 20
"""Limit of a message between processes of one grader."""
_LENGTH = struct.Struct(">I")
_PART_BYTES = 1 << 20


def write_message(descriptor: int, body: bytes) -> None:
    """Write one message. Raises OSError if the other end is closed."""
    unsent = memoryview(_LENGTH.pack(len(body)) + body)
    while unsent:
        unsent = unsent[os.write(descriptor, unsent) :]


def read_message(descriptor: int, most_bytes: int = MOST_BYTES, within_s: float | None = None) -> bytes:
    """Read one message; wait at most `within_s` for all of it.

    Raises:
        EOFError: the writer is gone, even in the middle of a message.
        ValueError: the message is longer than `most_bytes`.
        TimeoutError: the message is not complete in time.
    """
    until_s = None if within_s is None else time.monotonic() + within_s
    (length,) = _LENGTH.unpack(_read_exactly(descriptor, _LENGTH.size, until_s))
    if length > most_bytes:
        raise ValueError(f"a message of {length} bytes, where {most_bytes} are allowed")
    return _read_exactly(descriptor, length, until_s)


def _read_exactly(descriptor: int, size: int, until_s: float | None) -> bytes:
    parts, missing_bytes = [], size
    while missing_bytes:
        if until_s is not None:
            _await(descriptor, until_s)
        part = os.read(descriptor, min(missing_bytes, _PART_BYTES))
        if not part:
            raise EOFError
        parts.append(part)
        missing_bytes -= len(part)
    return b"".join(parts)


def _await(descriptor: int, until_s: float) -> None:
    poll = select.poll()  # `select` refuses descriptors above 1023
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(max(0.0, until_s - time.monotonic()) * 1000):
        raise TimeoutError
