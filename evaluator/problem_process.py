"""Process for a problem's code: a question in, an answer out, both as bytes.

The judge trusts a problem's code like the author, but the code may hang, print without end, or start processes. The
code therefore runs in the sandbox of the runners, with limits of time, memory and answer. All its processes end with
the answer, daemons included.
"""

import socket
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec

from evaluator.errors import InfraError, SandboxUnavailable
from evaluator.protocol.frames import Channel, Closed, DeadlinePassed, Frame, FrameError
from evaluator.protocol.one_question import answer_one
from evaluator.records import SandboxMode
from evaluator.sandbox import ForkServer, Limits

if TYPE_CHECKING:
    from evaluator.sandbox import Child

ANSWER_BYTES = 1 << 20
"""Limit of an answer: constants, or counts for a few sizes."""
_FRAME_BYTES = ANSWER_BYTES + 256
_LIMITS = Limits(memory_bytes=6 << 30, held_bytes=8 << 30, file_bytes=64 << 20, private_folder_bytes=64 << 20)
"""PyTorch reports an allocation beyond `memory_bytes` as an error; beyond `held_bytes` all processes are killed."""
_EXIT_S = 20.0
"""Limit on waiting for the exit of a process that has closed its socket."""


class NoAnswer(Exception):
    """The process ended without an answer, or answered too much."""


class TookTooLong(NoAnswer):
    """The process reached the time limit."""


class Question(Frame, frozen=True):
    """Judge: the question."""

    content: bytes


class Answer(Frame, frozen=True):
    """Process: the answer."""

    content: Annotated[bytes, msgspec.Meta(max_length=ANSWER_BYTES)]


def answer_of(module: str, question: bytes, limit_s: float) -> bytes:
    """Return the answer to `question` of `run` in `module`, which calls `serve` in a new process.

    All processes of the problem's code are dead afterwards. Printed text is dropped.

    Raises:
        NoAnswer: the process failed, answered more than `ANSWER_BYTES`, or reached `limit_s` (TookTooLong).
    """
    deadline_s = time.monotonic() + limit_s
    try:
        with _starter(module) as fork_server:
            child = fork_server.spawn(f"{module}:run", _LIMITS)
            return _answered(child, question, deadline_s)
    except DeadlinePassed as error:
        raise TookTooLong(f"the process took longer than {limit_s:.0f} s") from error
    except InfraError as error:
        raise NoAnswer(f"the process cannot be started: {error.message}") from error


def _starter(module: str) -> ForkServer:
    """Start the fork server, with every layer of the sandbox that the machine permits; none may be permitted."""
    fork_server = ForkServer(preload=(module,))
    try:
        _ = fork_server.layers
    except SandboxUnavailable:
        fork_server.close()
        return ForkServer(mode=SandboxMode.NONE, preload=(module,))
    except BaseException:
        fork_server.close()
        raise
    return fork_server


def _answered(child: "Child", question: bytes, deadline_s: float) -> bytes:
    channel = Channel(child.socket, receives=Answer, most_bytes=lambda _: _FRAME_BYTES)
    try:
        channel.send(Question(question), timeout_s=deadline_s - time.monotonic())
        answer = channel.receive(deadline_s - time.monotonic())
    except Closed as error:
        raise NoAnswer(f"the process ended with {_end(child)}") from error
    except FrameError as error:
        raise NoAnswer(f"the process gave no answer of at most {ANSWER_BYTES >> 20} MiB") from error
    finally:
        child.kill()
        channel.close()
    if not isinstance(answer, Answer):
        raise NoAnswer("the process gave no answer")
    return answer.content


def _end(child: "Child") -> str:
    ended = child.wait_exit(_EXIT_S)
    if ended is None:
        return "a closed socket"
    return f"status {ended.exit_code}" if ended.signal is None else ended.signal


def serve(sock: socket.socket, answer: Callable[[bytes], bytes]) -> None:
    """Answer the question from `sock`, in the new process."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answer_one(sock, Question, lambda asked: Answer(answer(asked.content)))
