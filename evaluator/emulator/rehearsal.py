"""What is read of a submission's C++ where that harms nobody: in a confined child.

The emulator's front end and the splitting of builds are Python, and take as long as a hostile text wants. The front end
runs in a child alone, which hands over what the compiler is given. A split is tried in a child, and done in the judge
where that took little.
"""

from collections.abc import Callable, Mapping

from evaluator.emulator.child import FindSizes, FoundSizes, Rehearsed
from evaluator.emulator.front import FrontEnd
from evaluator.isolation import Child, Limits
from evaluator.protocol.frames import BuildRequest, Channel, Closed, DeadlinePassed, Frame, FrameError
from evaluator.records import Constant

REHEARSING = "evaluator.emulator.child"
_LIMIT_S = 120.0
"""A real submission takes 0.1 s, one with 900 KiB of CUDA 20 s, on a busy machine some times that."""
_MOST_SPLIT_S = 0.7
_LIMITS = Limits(memory_bytes=1 << 30, processes=16, file_bytes=0, open_files=64, private_folder_bytes=1 << 20)

Spawn = Callable[[str, Limits], Child]
"""Starts a confined child that runs an entry."""


def read_for_emulator(request: BuildRequest, spawn: Spawn) -> FrontEnd | str:
    """Have the files of a build read for the emulator, or say what was too much about them.

    Raises:
        JudgeFailed: the child could not be started.
    """
    answer = _tried(request, "run", "the emulator", FrontEnd, spawn)
    return answer if isinstance(answer, FrontEnd | str) else "the emulator cannot read the sources"


def too_much_to_split(request: BuildRequest, spawn: Spawn) -> str | None:
    """Say what was too much about the files of a build to split them; None where nothing was.

    The judge splits what a child has split, and has no second for it. Without that a build takes longer.

    Raises:
        JudgeFailed: the child could not be started.
    """
    answer = _tried(request, "run_split", "the split", Rehearsed, spawn)
    if isinstance(answer, str):
        return answer
    if isinstance(answer, Rehearsed) and answer.cpu_s <= _MOST_SPLIT_S:
        return None
    return f"the split needs more than {_MOST_SPLIT_S:g} s of a processor to read the sources"


def _tried(request: BuildRequest, entry: str, what: str, receives: type[Frame], spawn: Spawn) -> Frame | str:
    try:
        return _asked(request, entry, receives, spawn)
    except DeadlinePassed:
        return f"{what} needs more than {_LIMIT_S:g} s to read the sources"
    except (Closed, FrameError):
        return f"{what} cannot read the sources: they nest too deeply, or take more than 1 GiB"


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
