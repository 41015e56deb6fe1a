"""Fenced blocks of an answer in Markdown, by CommonMark's rules. Each step takes time linear in the text."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_MARKER = re.compile(
    r"(?m)^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)$"
    r"|(?<=[.:!?] )(?P<behind>`{3,})(?P<language>[A-Za-z][\w+#]{0,15})[ \t\r]*$"
)
"""A line that may open or close a fenced block, or the end of a line of prose that opens a block with a language."""
_BLANK_LINES = re.compile(r"(?:[ \t\r]*\n)*+(?P<indent>[ \t]*)")
_LANGUAGE = re.compile(r"[ \t]*+(?P<name>[A-Za-z][\w+#]{0,15}+)[ \t\r]*+$")
_FENCE_SLACK = 3
"""Allowed extra indentation of a closing fence (CommonMark); beyond, the line is content."""


class Block(NamedTuple):
    """The content of a fenced block, as offsets into the answer; `closed` by its own fence or truncated.

    `indent` is the number of blanks at the start of each line that belong to the answer (such as a list), not to the
    code. `language` is the word after the fence, or empty.
    """

    start: int
    end: int
    indent: int
    closed: bool
    language: str


def fenced_blocks(text: str) -> Iterator[Block]:
    """Yield fenced blocks by CommonMark's rules, at any indentation (answers use lists).

    An unclosed block, such as a model's abandoned draft, must not swallow the answer. A fence that names a language can
    only open a block, and ends the block before.
    """
    opener: re.Match[str] | None = None
    for marker in _MARKER.finditer(text):
        if opener is not None:
            if _closes(marker, opener):
                yield _block(opener, marker.start(), closed=True)
                opener = None
                continue
            if not _ends_unclosed(marker, opener):
                continue
            yield _block(opener, marker.start(), closed=False)
        opener = marker if _can_open(marker) else None
    if opener is not None:
        yield _block(opener, len(text), closed=False)


def _block(opener: re.Match[str], end: int, *, closed: bool) -> Block:
    start = min(opener.end() + 1, end)
    indent = len(opener["indent"] or "")
    if indent:
        # Python's first line is at the left margin; if less indented than its fence, the whole code is.
        first = _BLANK_LINES.match(opener.string, start, end)
        indent = min(indent, len(first["indent"])) if first else 0
    language = _LANGUAGE.match(opener["info"] or opener["language"] or "")
    return Block(start, end, indent, closed, "" if language is None else language["name"])


def _can_open(marker: re.Match[str]) -> bool:
    return not ((marker["fence"] or "").startswith("`") and "`" in marker["info"])


def _could_belong(marker: re.Match[str], opener: re.Match[str]) -> bool:
    """Return whether a fence inside a block fits its opener: same character, not shorter, hardly more indented."""
    fence = marker["fence"] or ""  # Behind prose, a fence only opens.
    deepest = len(opener["indent"] or "") + _FENCE_SLACK
    return fence.startswith(opener["fence"] or opener["behind"]) and len(marker["indent"]) <= deepest


def _closes(marker: re.Match[str], opener: re.Match[str]) -> bool:
    return _could_belong(marker, opener) and not marker["info"].strip()


def _ends_unclosed(marker: re.Match[str], opener: re.Match[str]) -> bool:
    return _could_belong(marker, opener) and _can_open(marker) and len(marker["info"].split()) == 1


def content_of(text: str, block: Block) -> str:
    """Return the lines of a block without the block's indentation."""
    content = text[block.start : block.end]
    if not block.indent:
        return content
    lines = content.split("\n")
    return "\n".join(line[: block.indent].lstrip(" \t") + line[block.indent :] for line in lines)
