"""The confined process that reads a submission's C++ before the judge does: one frame in, one frame out."""

import contextlib
import socket
import time
from pathlib import Path
from typing import Annotated

import msgspec

from evaluator.build.sources import source_files
from evaluator.build.split_items import NotSplittable
from evaluator.build.split_source import split, without_precompiled
from evaluator.emulator.front import front_end
from evaluator.emulator.headers import has_header
from evaluator.emulator.lexer import tokens
from evaluator.emulator.sizes import hard_coded
from evaluator.protocol.frames import BuildRequest, Channel, Frame
from evaluator.protocol.frames.bounds import Text
from evaluator.records import Constant

_MAX_NUMBERS = 64
has_header("")  # Their names are read now: behind the walls no file of ours can be.


class Rehearsed(Frame, frozen=True):
    """Child: what reads the text got to its end, with so much of a processor's time."""

    cpu_s: float


def run(sock: socket.socket, _: Path) -> None:
    """Read a build request for the emulator. What goes wrong in here ends this process; the judge sees it."""
    channel = Channel(sock, receives=BuildRequest)
    asked = channel.receive()
    if isinstance(asked, BuildRequest):
        channel.send(front_end(asked))


def run_split(sock: socket.socket, _: Path) -> None:
    """Try to split a build request, whether that can be done or not."""
    channel = Channel(sock, receives=BuildRequest)
    asked = channel.receive()
    if isinstance(asked, BuildRequest):
        started = time.process_time()
        for file in source_files(asked):
            without_precompiled(file.text)
            tokens(file.text)
            with contextlib.suppress(NotSplittable):
                split(file.text)
        channel.send(Rehearsed(time.process_time() - started))


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
