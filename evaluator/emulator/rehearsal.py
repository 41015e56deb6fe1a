"""What is read of a submission's C++ where that harms nobody: in a confined child.

The emulator's front end and the splitting of builds are Python, and run in the judge without a limit of their own. A
text goes through them in a child first, with little time and memory. What the child gets through, the judge does too.
"""

from collections.abc import Callable, Mapping

from evaluator.emulator.child import FindSizes, FoundSizes, Rehearsed
from evaluator.frames import BuildRequest, Channel, Closed, DeadlinePassed, Frame, FrameError
from evaluator.isolation import Child, Limits
from evaluator.records import Constant

REHEARSING = "evaluator.emulator.child"
_LIMIT_S = 10.0
"""A real submission takes 0.1 s."""
_LIMITS = Limits(memory_bytes=1 << 30, processes=16, file_bytes=0, open_files=64, private_folder_bytes=1 << 20)

Spawn = Callable[[str, Limits], Child]
"""Starts a confined child that runs an entry."""


def too_much(request: BuildRequest, spawn: Spawn) -> str | None:
    """Say what was too much for the front end about the files of a build; None where nothing was.

    Raises:
        JudgeFailed: the child could not be started.
    """
    return _rehearsed(request, "run", "the emulator", spawn)


def too_much_to_split(request: BuildRequest, spawn: Spawn) -> str | None:
    """Say what was too much about the files of a build to split them; None where nothing was.

    Raises:
        JudgeFailed: the child could not be started.
    """
    return _rehearsed(request, "run_split", "whoever splits them", spawn)


def _rehearsed(request: BuildRequest, entry: str, who: str, spawn: Spawn) -> str | None:
    try:
        _asked(request, entry, Rehearsed, spawn)
    except DeadlinePassed:
        return f"{who} needs more than {_LIMIT_S:g} s to read the sources"
    except (Closed, FrameError):
        return f"{who} cannot read the sources: they nest too deeply, or take more than 1 GiB"
    return None


def full_size_numbers(
    source: str, full: Mapping[str, Constant], small: Mapping[str, Constant], spawn: Spawn
) -> list[tuple[int, int]]:
    """List numbers of the full size in a submission, with their lines (`sizes.hard_coded`); none in an unreadable one.

    Raises:
        JudgeFailed: the child could not be started.
    """
    try:
        answer = _asked(FindSizes(source, dict(full), dict(small)), "find_sizes", FoundSizes, spawn)
    except (DeadlinePassed, Closed, FrameError):
        return []
    return answer.found if isinstance(answer, FoundSizes) else []


def _asked(question: Frame, entry: str, receives: type[Frame], spawn: Spawn) -> Frame:
    """Have a confined child answer one question. Raises DeadlinePassed, Closed or FrameError where it does not."""
    child = spawn(f"{REHEARSING}:{entry}", _LIMITS)
    channel = Channel(child.socket, receives=receives)
    try:
        channel.send(question, timeout_s=_LIMIT_S)
        return channel.receive(_LIMIT_S)
    finally:
        child.kill()
        channel.close()
