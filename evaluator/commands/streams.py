"""The standard streams of a command: reopened if closed, and coloured on request."""

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO, cast

from evaluator.report.layout.workflow_commands import disarmed, disarmed_json

NAMES = ("stdin", "stdout", "stderr")
_MODES = ("r", "w", "w")


def open_closed() -> None:
    """Open closed standard streams on /dev/null.

    Otherwise the next file, socket or pipe would get the number of a closed stream, and receive text for users. Python
    represents a closed stream as None.
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
    """Redirect `stream` to /dev/null: Python flushes the stream again at exit."""
    with contextlib.suppress(OSError, ValueError):
        number = os.open(os.devnull, os.O_WRONLY)
        os.dup2(number, stream.fileno())
        os.close(number)
        stream.flush()


def coloured(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether text on `stream` is coloured: on a capable terminal, unless the environment decides otherwise.

    NO_COLOR takes precedence; FORCE_COLOR and CLICOLOR_FORCE also colour pipes; CLICOLOR=0 and TERM=dumb disable
    colours.
    """
    if environment.get("NO_COLOR"):
        return False
    if is_forced(environment):
        return True
    if environment.get("CLICOLOR") == "0" or environment.get("TERM") == "dumb":
        return False
    return stream.isatty()


def is_forced(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment forces colours on any stream."""
    forced = any(environment.get(name, "") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))
    return forced and not environment.get("NO_COLOR")


def in_workflow(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the process is a step of a workflow of GitHub Actions."""
    return environment.get("GITHUB_ACTIONS") == "true"


class _Harmless:
    """Stream without workflow commands in its text. Each line, or each document of JSON, is one `write`."""

    def __init__(self, stream: TextIO, *, is_json: bool) -> None:
        self._stream = stream
        self._is_json = is_json

    def write(self, text: str) -> int:
        return self._stream.write(disarmed_json(text.encode()).decode() if self._is_json else disarmed(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def harmless(stream: TextIO, *, is_json: bool = False) -> TextIO:
    """Return `stream`; in a workflow, a stream that removes workflow commands from submissions' text."""
    return cast("TextIO", _Harmless(stream, is_json=is_json)) if in_workflow() else stream
