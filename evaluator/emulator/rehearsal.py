"""Whether a submission's text is too much for the front end, tried where that harms nobody.

The front end is Python, and runs in the judge without a limit of its own. A text of some length goes through it in a
confined child first, with little time and memory. What the child gets through, the judge does too.
"""

from collections.abc import Callable

from evaluator.build.sources import source_files
from evaluator.emulator.child import Rehearsed
from evaluator.frames import BuildRequest, Channel, Closed, DeadlinePassed, FrameError
from evaluator.isolation import Child, Limits

REHEARSING = "evaluator.emulator.child"
_SHORT = 1 << 14
"""Characters that are not worth a child: whatever they are, they take less than a second."""
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
    if sum(len(file.text) for file in source_files(request)) <= _SHORT:
        return None
    child = spawn(f"{REHEARSING}:run", _LIMITS)
    channel = Channel(child.socket, receives=Rehearsed)
    try:
        channel.send(request, timeout_s=_LIMIT_S)
        channel.receive(_LIMIT_S)
    except DeadlinePassed:
        return f"the emulator needs more than {_LIMIT_S:g} s to read the sources"
    except (Closed, FrameError):
        return "the emulator cannot read the sources: they nest too deeply, or take more than 1 GiB"
    finally:
        child.kill()
        channel.close()
    return None
