"""The confined process that looks at one submission: one frame in, one frame out."""

import socket
from pathlib import Path

from evaluator.lint.look import look
from evaluator.lint.remark import Look
from evaluator.protocol.frames import Channel


def run(sock: socket.socket, _: Path) -> None:
    """Answer the judge's one frame over `sock`. What goes wrong in here ends this process; the judge sees it."""
    channel = Channel(sock, receives=Look)
    asked = channel.receive()
    if isinstance(asked, Look):
        channel.send(look(asked.submission))
