"""Confined process that analyses one submission: one frame in, one frame out."""

import socket
from pathlib import Path

from evaluator.lint.lint import look
from evaluator.lint.messages import Look
from evaluator.protocol.frames import Channel


def run(sock: socket.socket, _: Path) -> None:
    """Answer one frame over `sock`. An error ends the process, and the judge sees the closed connection."""
    channel = Channel(sock, receives=Look)
    asked = channel.receive()
    if isinstance(asked, Look):
        channel.send(look(asked.submission))
