"""Untrusted text in Markdown: code spans and fenced blocks, in which a host links no mention and runs no HTML. Pure."""

import re
from html import escape

from evaluator.text import one_line, printable

_TICKS = re.compile(r"`+")


def code_span(text: str, limit: int = 200) -> str:
    r"""Return text on one line as a code span, also for the cell of a table.

    >>> print(code_span("a|b"), code_span("``x"), code_span(""))
    `a\|b` ``` ``x ``` -
    """
    line = one_line(text, limit)
    if not line:
        return "-"
    ticks = "`" * (_longest(line) + 1)
    blank = " " if "`" in line else ""
    return f"{ticks}{blank}{line}{blank}{ticks}".replace("|", "\\|")


def folded(summary: str, text: str) -> list[str]:
    """Return the lines of a folded section: a summary of one line, and text in a fenced block."""
    text = printable(text)
    ticks = "`" * max(3, _longest(text) + 1)
    title = escape(one_line(summary, 300))
    return [f"<details><summary><code>{title}</code></summary>", "", f"{ticks}text", text, ticks, "", "</details>", ""]


def _longest(text: str) -> int:
    return max((len(run) for run in _TICKS.findall(text)), default=0)
