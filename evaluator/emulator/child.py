"""The confined process that reads a submission's C++ before the judge does: one frame in, one frame out."""

import contextlib
import socket
from pathlib import Path
from typing import Annotated

import msgspec

from evaluator.bounds import Text
from evaluator.build.sources import source_files
from evaluator.build.split_items import NotSplittable
from evaluator.build.split_source import split
from evaluator.emulator.device_code import device_code
from evaluator.emulator.features import unsupported
from evaluator.emulator.lexer import Code, tokens
from evaluator.emulator.rewriter import marks_returns, rewrite_host, rewrite_unit
from evaluator.emulator.sizes import hard_coded
from evaluator.frames import BuildRequest, Channel, Frame
from evaluator.records import Constant

_MAX_NUMBERS = 64


class Rehearsed(Frame, frozen=True):
    """Child: what reads the text got to its end."""


def run(sock: socket.socket, _: Path) -> None:
    """Try the front end on a build request. What goes wrong in here ends this process; the judge sees it."""
    channel = Channel(sock, receives=BuildRequest)
    asked = channel.receive()
    if isinstance(asked, BuildRequest):
        go_through([file.text for file in source_files(asked)])
        channel.send(Rehearsed())


def run_split(sock: socket.socket, _: Path) -> None:
    """Try to split a build request, whether that can be done or not."""
    channel = Channel(sock, receives=BuildRequest)
    asked = channel.receive()
    if isinstance(asked, BuildRequest):
        for file in source_files(asked):
            with contextlib.suppress(NotSplittable):
                split(file.text)
        channel.send(Rehearsed())


class FindSizes(Frame, frozen=True):
    """Judge: find the numbers of the full size in this submission; both sizes are constants by name."""

    submission: Text
    full: dict[str, Constant]
    small: dict[str, Constant]


class FoundSizes(Frame, frozen=True):
    """Child: the first of them, each with its line."""

    found: Annotated[list[tuple[int, int]], msgspec.Meta(max_length=_MAX_NUMBERS)]


def find_sizes(sock: socket.socket, _: Path) -> None:
    """Look for a problem's full size in a submission."""
    channel = Channel(sock, receives=FindSizes)
    asked = channel.receive()
    if isinstance(asked, FindSizes):
        channel.send(FoundSizes(hard_coded(asked.submission, asked.full, asked.small)[:_MAX_NUMBERS]))


def go_through(texts: list[str]) -> None:
    """Do all that the front end does with `texts`, and keep nothing."""
    for text in texts:
        unsupported(text, bool)
        rewrite_host(text)
        device_code(text)
        Code(tokens(text)).functions()
    marks_returns(texts)
    rewrite_unit(texts)
