"""The confined process that tries the front end on one build request: one frame in, one frame out."""

import socket
from pathlib import Path

from evaluator.build.sources import source_files
from evaluator.emulator.device_code import device_code
from evaluator.emulator.features import unsupported
from evaluator.emulator.lexer import Code, tokens
from evaluator.emulator.rewriter import marks_returns, rewrite_host, rewrite_unit
from evaluator.frames import BuildRequest, Channel, Frame


class Rehearsed(Frame, frozen=True):
    """Child: the front end got to its end."""


def run(sock: socket.socket, _: Path) -> None:
    """Answer the judge's one frame over `sock`. What goes wrong in here ends this process; the judge sees it."""
    channel = Channel(sock, receives=BuildRequest)
    asked = channel.receive()
    if isinstance(asked, BuildRequest):
        go_through([file.text for file in source_files(asked)])
        channel.send(Rehearsed())


def go_through(texts: list[str]) -> None:
    """Do all that the front end does with `texts`, and keep nothing."""
    for text in texts:
        unsupported(text, bool)
        rewrite_host(text)
        device_code(text)
        Code(tokens(text)).functions()
    marks_returns(texts)
    rewrite_unit(texts)
