"""Output of a runner: drained continuously, kept in part, escaped before display."""

import contextlib
import os
import threading

from evaluator.records import RunnerOutput

_CHUNK_BYTES = 1 << 16


class OutputDrain:
    """A thread that reads a pipe to its end and keeps the first and the last `kept_bytes`.

    The thread never blocks the writer for long and holds at most twice `kept_bytes`, however much is written.
    """

    def __init__(self, descriptor: int, kept_bytes: int) -> None:
        """Take ownership of `descriptor`, the read end of a pipe."""
        self._descriptor = descriptor
        self._kept_bytes = kept_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._total_bytes = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name="output-drain", daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with contextlib.closing(os.fdopen(self._descriptor, "rb", buffering=0)) as pipe:
            while chunk := pipe.read(_CHUNK_BYTES):
                with self._lock:
                    self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        self._total_bytes += len(chunk)
        missing = self._kept_bytes - len(self._head)
        self._head += chunk[:missing]
        self._tail += chunk[missing:]
        del self._tail[: max(0, len(self._tail) - self._kept_bytes)]

    def finish(self, timeout_s: float) -> None:
        """Wait until every writer has closed the pipe."""
        self._thread.join(timeout_s)

    def text(self) -> RunnerOutput:
        """Return the output read so far."""
        with self._lock:
            head, tail, total = bytes(self._head), bytes(self._tail), self._total_bytes
        left_out = total - len(head) - len(tail)
        gap = f"\n[... {left_out} bytes left out ...]\n".encode() if left_out else b""
        return RunnerOutput(total_bytes=total, text=harmless((head + gap + tail).decode(errors="replace")))


def harmless(text: str) -> str:
    r"""Escape characters that could control a terminal or mislead its reader: escapes, controls, direction marks.

    >>> harmless("ok\r\n\x1b[31mred")
    'ok\n\\x1b[31mred'
    """
    return "".join(
        character if character.isprintable() or character in "\n\t" else character.encode("unicode_escape").decode()
        for character in text.replace("\r\n", "\n")
    )
