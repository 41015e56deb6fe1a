"""Workflow commands of GitHub Actions: written on purpose, and made harmless in text of others. Pure.

The runner of a workflow reads every line of a step's output. A line that begins with `::`, and `##[` anywhere in a
line, are commands: they hide words, create annotations, or end a group. A submission chooses its name and what it
prints.
"""

import re
from enum import StrEnum

from evaluator.text import printable

_AT_START = re.compile(r"(^|[\r\n])(\s*):(?=:)")


class Level(StrEnum):
    """Severity of an annotation."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


def disarmed(text: str) -> str:
    r"""Return text without workflow commands.

    >>> disarmed("::error::x\n  ::add-mask::a ##[group]b, at::Tensor")
    ': :error::x\n  : :add-mask::a ## [group]b, at::Tensor'
    """
    return _AT_START.sub(r"\1\2: ", text.replace("##[", "## ["))


def disarmed_json(document: bytes) -> bytes:
    r"""Return the same JSON document without workflow commands. Only a string contains `##[`.

    >>> disarmed_json(b'{"name": "##[group]"}')
    b'{"name": "\\u0023#[group]"}'
    """
    return document.replace(b"##[", b"\\u0023#[")


def annotation(level: Level, message: str, *, title: str, file: str | None = None, line: int | None = None) -> str:
    r"""Return the command for an annotation, as one line. No text ends the command early or adds a property.

    The log of a workflow is a terminal: texts have no control characters.

    >>> annotation(Level.ERROR, "100 %\n::warning::x", title="a,line=1::b", file="relu/b.py", line=3)
    '::error file=relu/b.py,line=3,title=a%2Cline=1%3A%3Ab::100 %25%0A: :warning::x'
    >>> annotation(Level.ERROR, "x", title="t", file="\x1b]0;owned\x07\u202ered.py")
    '::error file=red.py,title=t::x'
    """
    values = {"file": file, "line": None if line is None else str(line), "title": title}
    properties = ",".join(f"{name}={_property(value)}" for name, value in values.items() if value is not None)
    return f"::{level.value} {properties}::{_data(message)}"


def _data(text: str) -> str:
    return disarmed(printable(text)).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
