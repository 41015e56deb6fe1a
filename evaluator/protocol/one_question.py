"""One question to a confined child process and one answer: the judge's side, and the child's side."""

import socket
from collections.abc import Callable
from typing import Protocol, TypeVar

from evaluator.protocol.frames import Channel, Frame, FrameError

F = TypeVar("F", bound=Frame)
A = TypeVar("A", bound=Frame)


class Child(Protocol):
    """A child process with an end of a socket."""

    socket: socket.socket

    def kill(self) -> object:
        """Kill every process of the child."""


def ask(child: Child, question: Frame, receives: type[A], limit_s: float) -> A:
    """Return the child's answer to `question`. The child is dead afterwards.

    Raises:
        DeadlinePassed, Closed, FrameError: there is no valid answer within `limit_s`.
    """
    channel = Channel(child.socket, receives=receives)
    try:
        channel.send(question, timeout_s=limit_s)
        answer = channel.receive(limit_s)
    finally:
        child.kill()
        channel.close()
    if not isinstance(answer, receives):
        raise FrameError(f"the answer is a {type(answer).__name__}")
    return answer


def answer_one(sock: socket.socket, receives: type[F], answer: Callable[[F], Frame]) -> None:
    """Answer one question over `sock`, in the child. An error ends the process, and the judge sees the end."""
    channel = Channel(sock, receives=receives)
    question = channel.receive()
    if isinstance(question, receives):
        channel.send(answer(question))
