"""Analysis of a submission's C++ in a confined child.

The emulator's front end and the splitter are Python code whose run time a hostile text controls. The front end runs
only in the child, which returns the rewritten sources. A split is first tried in the child; the judge repeats the split
only after a short trial.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from evaluator.emulator.frontend.front_end import FrontEnd
from evaluator.emulator.parsing import REHEARSING
from evaluator.emulator.parsing.sandboxed_parser import FindSizes, FoundSizes, Rehearsed
from evaluator.protocol.frames import BuildRequest, Closed, DeadlinePassed, Frame, FrameError
from evaluator.protocol.one_question import ask
from evaluator.records import Constant
from evaluator.sandbox import Child, Limits

_LIMIT_S = 120.0
"""A real submission takes 0.1 s, a submission with 900 KiB of CUDA 20 s, and a multiple on a busy machine."""
_MOST_SPLIT_S = 0.7
_LIMITS = Limits(memory_bytes=1 << 30, processes=16, file_bytes=0, open_files=64, private_folder_bytes=1 << 20)

A = TypeVar("A", bound=Frame)
Spawn = Callable[[str, Limits], Child]
"""Starts a confined child with an entry point."""


def read_for_emulator(request: BuildRequest, spawn: Spawn) -> FrontEnd | str:
    """Run the front end in a child; return its result, or the exceeded limit.

    Raises:
        JudgeFailed: the child could not be started.
    """
    return _tried(request, "run", "the emulator", FrontEnd, spawn)


def too_much_to_split(request: BuildRequest, spawn: Spawn) -> str | None:
    """Return the limit that prevents splitting a build; None within all limits.

    The judge repeats every split that succeeds in a child, within less than a second. Without a split the build takes
    longer.

    Raises:
        JudgeFailed: the child could not be started.
    """
    answer = _tried(request, "run_split", "the split", Rehearsed, spawn)
    if isinstance(answer, str):
        return answer
    if answer.cpu_s <= _MOST_SPLIT_S:
        return None
    return f"the split needs more than {_MOST_SPLIT_S:g} s of a processor to read the sources"


def _tried(request: BuildRequest, entry: str, what: str, receives: type[A], spawn: Spawn) -> A | str:
    try:
        return _asked(request, entry, receives, spawn)
    except DeadlinePassed:
        return f"{what} needs more than {_LIMIT_S:g} s to read the sources"
    except (Closed, FrameError):
        return f"{what} cannot read the sources: they nest too deeply, or take more than 1 GiB"


def full_size_numbers(
    source: str, full: Mapping[str, Constant], small: Mapping[str, Constant], spawn: Spawn
) -> list[tuple[int, int]]:
    """List full-size constants in a submission, with lines (`hard_coded_sizes.hard_coded`).

    Empty for an unreadable submission.

    Raises:
        JudgeFailed: the child could not be started.
    """
    try:
        return _asked(FindSizes(source, dict(full), dict(small)), "find_sizes", FoundSizes, spawn).found
    except (DeadlinePassed, Closed, FrameError):
        return []


def _asked(question: Frame, entry: str, receives: type[A], spawn: Spawn) -> A:
    """Send one request to a confined child. Raises DeadlinePassed, Closed or FrameError without a valid answer."""
    return ask(spawn(f"{REHEARSING}:{entry}", _LIMITS), question, receives, _LIMIT_S)
