"""One question to a confined child, and one answer: the only way to run a parser, or a problem's code, in the sandbox.

A child reads a stranger's text or runs an author's code, and may hang, crash, flood or lie. The judge therefore limits
the child's time and memory, and the bytes of the answer, and decodes the answer into its type. A missing answer is a
value with a reason. Every process of a child is dead once its question has returned; printed text is dropped.
"""

import contextlib
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar, cast

import msgspec

from evaluator.errors import InfraError, JudgeFailed, SandboxUnavailable
from evaluator.protocol.frames import MAX_FRAME_BYTES, Channel, Closed, DeadlinePassed, FrameError
from evaluator.records import SandboxMode
from evaluator.sandbox.available_layers import Limits
from evaluator.sandbox.confined_process import Child
from evaluator.sandbox.fork_server_client import ForkServer

Q = TypeVar("Q", bound=msgspec.Struct)
A = TypeVar("A", bound=msgspec.Struct)
Spawn = Callable[[str, Limits], Child]
"""Starts a confined child with an entry point."""

TEXT_LIMITS = Limits(memory_bytes=1 << 30, processes=16, file_bytes=0, open_files=64, private_folder_bytes=1 << 20)
"""Limits of Warpgrade's own parsers. Python's syntax tree of a 1 MiB text may take a few hundred MiB."""
PROBLEM_LIMITS = Limits(memory_bytes=6 << 30, held_bytes=8 << 30, file_bytes=64 << 20, private_folder_bytes=64 << 20)
"""Limits of a problem's code: PyTorch reports an allocation beyond `memory_bytes` as an error; beyond `held_bytes` all
processes are killed."""
PROBLEM_ANSWER_BYTES = 1 << 20
"""Limit of an answer of a problem's code: constants, or counts for a few sizes."""
_EXIT_S = 20.0
"""Limit on waiting for the exit of a child that has closed its socket."""


class NoAnswer(NamedTuple):
    """Reason why a child gave no answer. `timed_out`: the child reached the time limit."""

    reason: str
    timed_out: bool = False


class Question(NamedTuple, Generic[Q, A]):
    """A question that a child answers: both types, the child's entry point ("module:function"), and the limits.

    The module of the entry point defines the function by `answered_by`.
    """

    entry: str
    asks: type[Q]
    answers: type[A]
    limit_s: float
    limits: Limits = TEXT_LIMITS
    answer_bytes: int = MAX_FRAME_BYTES

    def answered_by(self, answer: Callable[[Q], A]) -> Callable[[socket.socket, Path], None]:
        """Return the child's entry point. An error in `answer` ends the child, and the judge sees the end."""

        def run(sock: socket.socket, _: Path) -> None:
            channel = Channel(sock, receives=self.asks)
            channel.send(answer(cast("Q", channel.receive())))

        return run

    def ask(self, content: Q, spawn: Spawn) -> A | NoAnswer:
        """Return the answer of a child from `spawn`, or the reason why there is none. The child is dead afterwards.

        Raises:
            JudgeFailed: the child could not be started or killed.
        """
        child = spawn(self.entry, self.limits)
        deadline_s = time.monotonic() + self.limit_s
        channel = Channel(child.socket, receives=self.answers, most_bytes=lambda _: self.answer_bytes)
        try:
            channel.send(content, timeout_s=self.limit_s)
            return cast("A", channel.receive(deadline_s - time.monotonic()))
        except DeadlinePassed:
            return NoAnswer(f"the process took longer than {self.limit_s:.0f} s", timed_out=True)
        except Closed:
            return NoAnswer(f"the process ended with {_end(child, deadline_s)}")
        except FrameError:
            return NoAnswer(f"the process gave no valid answer of at most {self.answer_bytes >> 20} MiB")
        except OverflowError:
            return NoAnswer("the question has a number of more than 64 bits")
        finally:
            child.kill()
            channel.close()

    def ask_in_new_sandbox(self, content: Q) -> A | NoAnswer:
        """Ask a child of a new fork server, with every layer of the sandbox that the machine permits, even none.

        Outside of a grade there is no fork server. PyTorch uses one thread.
        """
        try:
            try:
                return self._ask_in(SandboxMode.FULL, content)
            except SandboxUnavailable:
                return self._ask_in(SandboxMode.NONE, content)
        except InfraError as error:
            return NoAnswer(f"the process cannot be started: {error.message}")

    def _ask_in(self, mode: SandboxMode, content: Q) -> A | NoAnswer:
        module = self.entry.partition(":")[0]
        with ForkServer(mode=mode, environment={"OMP_NUM_THREADS": "1"}, preload=(module,)) as fork_server:
            return self.ask(content, fork_server.spawn)


def _end(child: Child, deadline_s: float) -> str:
    ended = None
    with contextlib.suppress(JudgeFailed):  # The child's init process is dead, too: what killed both is unknown.
        ended = child.wait_exit(min(_EXIT_S, max(deadline_s - time.monotonic(), 0.0)))
    if ended is None:
        return "a closed socket"
    return f"status {ended.exit_code}" if ended.signal is None else ended.signal
