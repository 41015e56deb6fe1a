"""Process for a problem's code: a question in, an answer out, both as bytes.

The judge trusts a problem's code like the author, but the code may hang, print without end, or start processes. The
process therefore has a new session, limits of time, memory and answer, and ends together with the process group.
"""

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from evaluator.sandbox.kernel import syscalls

ANSWER_BYTES = 1 << 20
"""Limit of an answer: constants, or counts for a few sizes."""
_DATA_BYTES = 6 << 30
_CHUNK_BYTES = 1 << 16
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); import importlib; importlib.import_module(sys.argv[2]).main()"
_TOP = Path(__file__).resolve().parents[1]


class NoAnswer(Exception):
    """The process ended without an answer, or answered too much."""


class TookTooLong(NoAnswer):
    """The process reached the time limit."""


def answer_of(module: str, question: bytes, limit_s: float) -> bytes:
    """Return the answer to `question` of `main` in `module`, by a call of `serve` in a new process.

    All processes of the group are dead afterwards. Printed text is dropped.

    Raises:
        NoAnswer: the process failed, answered more than `ANSWER_BYTES`, or reached `limit_s` (TookTooLong).
    """
    try:
        # -P: no module of the current folder is imported.
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, str(_TOP), module, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise NoAnswer(f"the process cannot be started: {error.strerror}") from error
    with process:
        try:
            answer = _exchanged(process, question, time.monotonic() + limit_s)
        except TimeoutError as error:
            raise TookTooLong(f"the process took longer than {limit_s:.0f} s") from error
        finally:
            # Before the wait for the leader, no other group can have the number.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if process.wait() != 0:
            raise NoAnswer(f"the process ended with status {process.returncode}")
    return answer


def _exchanged(process: "subprocess.Popen[bytes]", question: bytes, deadline_s: float) -> bytes:
    """Send the question, and return the answer when the process has ended. Raises TimeoutError at the deadline."""
    assert process.stdin is not None  # noqa: S101 - for the type checker: both are pipes
    assert process.stdout is not None  # noqa: S101 - as above
    left, answer = memoryview(question), bytearray()
    for pipe in (process.stdin, process.stdout):
        os.set_blocking(pipe.fileno(), False)
    # A process below may hold the pipe open: the answer ends with the death of the process.
    ended = os.pidfd_open(process.pid)
    with contextlib.closing(os.fdopen(ended, "rb", buffering=0)), selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            ready = {key.fileobj for key, _ in selector.select(left_s)}
            if process.stdin in ready:
                left = _written(process.stdin.fileno(), left)
                if not left:
                    selector.unregister(process.stdin)
                    process.stdin.close()
            if process.stdout in ready or ended in ready:
                chunk = _available(process.stdout.fileno())
                answer += chunk
                if len(answer) > ANSWER_BYTES:
                    raise NoAnswer(f"the answer is longer than {ANSWER_BYTES >> 20} MiB")
                if not chunk and ended in ready:
                    return bytes(answer)
                if not chunk and process.stdout in ready:
                    selector.unregister(process.stdout)


def _written(descriptor: int, content: memoryview) -> memoryview:
    """Write a part of the content, and return the rest: nothing without a reader."""
    try:
        return content[os.write(descriptor, content) :]
    except BrokenPipeError:
        return content[:0]


def _available(descriptor: int) -> bytes:
    """Return the present content of a pipe; nothing at the end."""
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except BlockingIOError:
        return b""


def serve(answer: Callable[[bytes], bytes]) -> None:
    """Answer the question on stdin, in the new process, and exit.

    Printed text is dropped. The process dies with the asking thread.
    """
    import torch

    syscalls.die_with_parent(int(sys.argv[3]), signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_DATA, (_DATA_BYTES, _DATA_BYTES))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        answers.write(answer(sys.stdin.buffer.read()))
    os._exit(0)
