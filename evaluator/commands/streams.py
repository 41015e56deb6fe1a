"""The three standard streams of a command: opened where they were closed, coloured where that is wanted."""

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import TextIO

NAMES = ("stdin", "stdout", "stderr")
_MODES = ("r", "w", "w")


def open_closed() -> None:
    """Open the standard streams that this process was started without: they read nothing and lose what is written.

    Else the next file, socket or pipe takes the number of one that is closed, and what is meant for a person lands
    there. Python itself has None in the place of such a stream.
    """
    for number, (name, mode) in enumerate(zip(NAMES, _MODES, strict=True)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - the lowest number, which is this
        if getattr(sys, name) is None:
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - the process's own
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def lose(stream: TextIO) -> None:
    """Send what is written to `stream` from now on nowhere: Python flushes it once more when it ends."""
    with contextlib.suppress(OSError, ValueError):
        number = os.open(os.devnull, os.O_WRONLY)
        os.dup2(number, stream.fileno())
        os.close(number)
        stream.flush()


def coloured(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether text on `stream` is coloured: on a terminal that can, unless the user said otherwise.

    NO_COLOR comes first; FORCE_COLOR and CLICOLOR_FORCE colour a pipe too; CLICOLOR=0 and TERM=dumb colour nothing.
    """
    if environment.get("NO_COLOR"):
        return False
    if is_forced(environment):
        return True
    if environment.get("CLICOLOR") == "0" or environment.get("TERM") == "dumb":
        return False
    return stream.isatty()


def is_forced(environment: Mapping[str, str] = os.environ) -> bool:
    """Say whether the user wants colours whatever the stream leads to."""
    forced = any(environment.get(name, "") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))
    return forced and not environment.get("NO_COLOR")
