"""Confined process that runs the emulator's front end on a submission's C++: one frame in, one frame out."""

import contextlib
import socket
import time
from pathlib import Path
from typing import Annotated

import msgspec

from evaluator.cuda_source.declarations import NotSplittable
from evaluator.cuda_source.lexer import tokens
from evaluator.cuda_source.source_files import source_files
from evaluator.cuda_source.split import split, without_precompiled
from evaluator.emulator.frontend.front_end import front_end
from evaluator.emulator.frontend.hard_coded_sizes import hard_coded
from evaluator.emulator.headers import has_header
from evaluator.protocol.frames import BuildRequest, Frame
from evaluator.protocol.frames.bounds import Text
from evaluator.protocol.one_question import answer_one
from evaluator.records import Constant

_MAX_NUMBERS = 64
has_header("")  # Reads the header names now: the sandbox hides our files.


class Rehearsed(Frame, frozen=True):
    """Child: the source analysis completed, with the given CPU time."""

    cpu_s: float


def run(sock: socket.socket, _: Path) -> None:
    """Run the front end on a build request. Errors end the process, and the judge sees the closed connection."""
    answer_one(sock, BuildRequest, front_end)


def run_split(sock: socket.socket, _: Path) -> None:
    """Try to split a build request, and report the CPU time even if the split is impossible."""
    answer_one(sock, BuildRequest, _rehearsed)


def _rehearsed(request: BuildRequest) -> Rehearsed:
    started = time.process_time()
    for file in source_files(request):
        without_precompiled(file.text)
        tokens(file.text)
        with contextlib.suppress(NotSplittable):
            split(file.text)
    return Rehearsed(time.process_time() - started)


class FindSizes(Frame, frozen=True):
    """Judge: find constants of the full size in a submission. Both mappings hold constants by name."""

    submission: Text
    full: dict[str, Constant]
    small: dict[str, Constant]


class FoundSizes(Frame, frozen=True):
    """Child: the first matches, as pairs of number and line."""

    found: Annotated[list[tuple[int, int]], msgspec.Meta(max_length=_MAX_NUMBERS)]


def find_sizes(sock: socket.socket, _: Path) -> None:
    """Find constants of a problem's full size in a submission."""
    answer_one(sock, FindSizes, _found_sizes)


def _found_sizes(asked: FindSizes) -> FoundSizes:
    return FoundSizes(hard_coded(asked.submission, asked.full, asked.small)[:_MAX_NUMBERS])
