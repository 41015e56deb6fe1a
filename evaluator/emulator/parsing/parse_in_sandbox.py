"""Analysis of a submission's C++ in a confined child: the judge's side, and the child's side.

The emulator's front end and the splitter are Python code whose run time a hostile text controls. The front end runs
only in the child, which returns the rewritten sources. A split is first tried in the child; the judge repeats the split
only after a short trial.
"""

import contextlib
import time
from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec

from evaluator.cuda_source.declarations import NotSplittable
from evaluator.cuda_source.lexer import tokens
from evaluator.cuda_source.source_files import source_files
from evaluator.cuda_source.split import split, without_precompiled
from evaluator.emulator.frontend.front_end import FrontEnd, front_end
from evaluator.emulator.frontend.hard_coded_sizes import hard_coded
from evaluator.emulator.headers import has_header
from evaluator.emulator.parsing import PARSER
from evaluator.protocol.frames import BuildRequest, Frame
from evaluator.protocol.frames.bounds import Text
from evaluator.records import Constant
from evaluator.sandbox.question import NoAnswer, Question, Spawn

A = TypeVar("A", bound=Frame)
_LIMIT_S = 120.0
"""A real submission takes 0.1 s, a submission with 900 KiB of CUDA 20 s, and a multiple on a busy machine."""
_MOST_SPLIT_S = 0.7
_MAX_NUMBERS = 64
has_header("")  # Reads the header names now: the sandbox hides our files.


class SplitTried(Frame, frozen=True):
    """Child: the trial of a split is complete, with the given CPU time."""

    cpu_s: float


class FindSizes(Frame, frozen=True):
    """Judge: find constants of the full size in a submission. Both mappings hold constants by name."""

    submission: Text
    full: dict[str, Constant]
    small: dict[str, Constant]


class FoundSizes(Frame, frozen=True):
    """Child: the first matches, as pairs of number and line."""

    found: Annotated[list[tuple[int, int]], msgspec.Meta(max_length=_MAX_NUMBERS)]


FRONT_END = Question(f"{PARSER}:run_front_end", BuildRequest, FrontEnd, _LIMIT_S)
SPLIT = Question(f"{PARSER}:run_split", BuildRequest, SplitTried, _LIMIT_S)
SIZES = Question(f"{PARSER}:run_sizes", FindSizes, FoundSizes, _LIMIT_S)


def read_for_emulator(request: BuildRequest, spawn: Spawn) -> FrontEnd | str:
    """Run the front end in a child; return its result, or the exceeded limit.

    Raises:
        JudgeFailed: the child could not be started.
    """
    return _ask(FRONT_END, request, "the emulator", spawn)


def too_much_to_split(request: BuildRequest, spawn: Spawn) -> str | None:
    """Return the limit that prevents splitting a build; None within all limits.

    The judge repeats every split that succeeds in a child, within less than a second. Without a split the build takes
    longer.

    Raises:
        JudgeFailed: the child could not be started.
    """
    answer = _ask(SPLIT, request, "the split", spawn)
    if isinstance(answer, str):
        return answer
    if answer.cpu_s <= _MOST_SPLIT_S:
        return None
    return f"the split needs more than {_MOST_SPLIT_S:g} s of a processor to read the sources"


def full_size_numbers(
    source: str, full: Mapping[str, Constant], small: Mapping[str, Constant], spawn: Spawn
) -> list[tuple[int, int]]:
    """List full-size constants in a submission, with lines (`hard_coded_sizes.hard_coded`).

    Empty for an unreadable submission.

    Raises:
        JudgeFailed: the child could not be started.
    """
    answer = SIZES.ask(FindSizes(source, dict(full), dict(small)), spawn)
    return [] if isinstance(answer, NoAnswer) else answer.found


def _ask(question: Question[BuildRequest, A], request: BuildRequest, reader: str, spawn: Spawn) -> A | str:
    answer = question.ask(request, spawn)
    if not isinstance(answer, NoAnswer):
        return answer
    if answer.timed_out:
        return f"{reader} needs more than {question.limit_s:g} s to read the sources"
    return f"{reader} cannot read the sources: they nest too deeply, or take more than 1 GiB"


def _try_split(request: BuildRequest) -> SplitTried:
    started = time.process_time()
    for file in source_files(request):
        without_precompiled(file.text)
        tokens(file.text)
        with contextlib.suppress(NotSplittable):
            split(file.text)
    return SplitTried(time.process_time() - started)


def _find_sizes(question: FindSizes) -> FoundSizes:
    return FoundSizes(hard_coded(question.submission, question.full, question.small)[:_MAX_NUMBERS])


run_front_end = FRONT_END.answered_by(front_end)
run_split = SPLIT.answered_by(_try_split)
run_sizes = SIZES.answered_by(_find_sizes)
