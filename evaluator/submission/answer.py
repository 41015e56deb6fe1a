"""A language model's answer: fenced blocks of code, and reasoning, never graded.

Only the text after the last finished thought is the answer, up to a thought that never ends. `<answer>` tags narrow the
answer further. Tags inside a fenced block are text of the block. A closing tag may stand alone: if the prompt ends with
the opening tag, the text begins inside a thought.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from evaluator.submission.model_new import starts_like_python

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


_NAMES = (
    r"(?:\w{1,20}:)?(?:think(?:ing)?|thoughts?|thought_process|reason(?:ing)?(?:_content)?|analysis|reflection|"
    r"scratchpad|chain_of_thought|inner_monologue)"
)
_OPENS = rf"(?:<\|?{_NAMES}(?:[ \t][^<>\n]{{0,80}})?\|?>|\[THINK\]|\u25c1think\u25b7|<unused94>|<\|inner_prefix\|>)"
_RESULTS = r"(?:(?:final_)?answer|solution|response)"
_THOUGHT_MARKER = re.compile(
    r"(?:^|(?<=>))[ \t]*+(?P<fence>`{3,}|~{3,})[^\n]*+$"
    rf"|(?P<opens>{_OPENS}|<\|begin_of_thought\|>|<\|START_THINKING\|>"
    r"|<\|channel\|?> {0,9}(?:analysis|commentary|thought)\b|\A\s*+(?-i:analysis(?=[A-Z])))"
    rf"|(?P<ends><(?:/|\|/|/\|){_NAMES}[ \t]{{0,9}}\|?>|<unused95>|<\|inner_suffix\|>"
    r"|\[/THINK\]|\u25c1/think\u25b7|<\|end_of_thought\|>|<\|END_THINKING\|>"
    r"|<channel\|>|<\|channel\|> {0,9}final\b[^<\n]{0,80}<\|message\|>|(?-i:assistantfinal))"
    rf"|(?P<begins>^[ \t]*+<{_RESULTS}>)|(?P<finishes></{_RESULTS}>)",
    re.MULTILINE | re.IGNORECASE,
)
"""Fences, and the tags of DeepSeek, Qwen, Mistral, Kimi, Seed, Cohere, Gemma and gpt-oss (also without its tokens)."""
_HINTS = (
    *("think", "thought", "reason", "analysis", "reflection", "scratchpad", "channel", "assistantfinal", "unused9"),
    *("inner_",),
)
_RESULT_HINTS = ("<answer>", "<final_answer>", "<solution>", "<response>")
"""Every text with a tag has one of the hints, in lower case: other texts need no pass."""
_FENCE = re.compile(r"(?:^|(?<=>))[ \t]*+(?:`{3}|~{3})", re.MULTILINE)
_REST_OF_LINE = re.compile(r"[ \t\r]*+\n")
_STOPS = (
    *("<|return|>", "<|end|>", "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "</s>"),
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
"""Tokens at the end of a turn, left in the text by some inference servers."""
_MOST_STOPS = 4
_MOST_BLANKS = 80
_QUOTES = "'\"`"


class Answer(NamedTuple):
    """The answer inside of a model's text, as offsets. `unended` is the offset of a thought that never ends, or None.

    `reasoned` is the end of the last finished thought; 0 without thoughts.
    """

    start: int
    end: int
    reasoned: int = 0
    unended: int | None = None


def answer_in(text: str) -> Answer:
    r"""Return the place of the answer.

    >>> text = "<think>\nfirst\n</think>\nlast"
    >>> text[answer_in(text).start :]
    'last'
    """
    end = _without_stops(text)
    lower = text.lower()
    if starts_like_python(text) or not any(hint in lower for hint in (*_HINTS, *_RESULT_HINTS)):
        return Answer(0, end)
    return _Scan(text, end).answer()


class _Scan:
    """One pass over the markers of a text. `fence` is the fence of the open block."""

    def __init__(self, text: str, end: int) -> None:
        self._text, self._end = text, end
        self._start, self._finish = 0, end
        self._reasoned = 0
        self._thought: int | None = None
        self._fence: str | None = None
        self._fences_left = sum(1 for _ in _FENCE.finditer(text, 0, end))

    def answer(self) -> Answer:
        """Return the place of the answer."""
        for marker in _THOUGHT_MARKER.finditer(self._text, 0, self._end):
            match marker.lastgroup:
                case "fence":
                    self._fences_left -= 1
                    self._at_fence(marker)
                case "ends":
                    self._at_end(marker)
                case _ if self._thought is not None or self._fence is not None:
                    continue
                case "opens":
                    self._thought = None if self._is_quoted(marker) else marker.start()
                case "begins":
                    self._start, self._finish = marker.end(), self._end
                case _ if self._start > self._reasoned:
                    self._finish = marker.start()
        if (rest := _REST_OF_LINE.match(self._text, self._start)) is not None and self._start:
            self._start = rest.end()
        if self._thought is not None:
            self._finish = min(self._finish, self._thought)
        return Answer(self._start, max(self._start, self._finish), self._reasoned, self._thought)

    def _at_fence(self, marker: re.Match[str]) -> None:
        """Open or close a block of the answer. A fence that names a language opens a block, also inside a block."""
        if self._thought is not None:
            return
        fence, line = marker["fence"], marker.group().strip()
        if self._fence is None or (line != fence and " " not in line and fence.startswith(self._fence)):
            self._fence = fence
        elif line == fence and fence.startswith(self._fence):
            self._fence = None

    def _at_end(self, marker: re.Match[str]) -> None:
        """End a thought, unless the tag is quoted, or is text of a block.

        In a block outside of a known thought, the tag ends a thought that the prompt has opened, if the tag is alone on
        its line, and the later fences pair up without the block's.
        """
        if self._is_quoted(marker):
            return
        if self._thought is None and self._fence is not None and (self._fences_left % 2 or not self._is_alone(marker)):
            return
        self._thought = self._fence = None
        self._start = self._reasoned = marker.end()
        self._finish = self._end

    def _is_quoted(self, marker: re.Match[str]) -> bool:
        """Return whether a tag stands in quotes, as where an answer speaks of the tag."""
        before, behind = self._text[marker.start() - 1 : marker.start()], self._text[marker.end() : marker.end() + 1]
        return bool(before) and before in _QUOTES and before == behind

    def _is_alone(self, marker: re.Match[str]) -> bool:
        """Return whether a tag stands alone on its line."""
        before = self._text[max(0, marker.start() - _MOST_BLANKS) : marker.start()].rpartition("\n")
        behind = self._text[marker.end() : marker.end() + _MOST_BLANKS].partition("\n")
        return not (before[2].strip() or behind[0].strip())


def _without_stops(text: str) -> int:
    """Return the end of the text without the tokens that end a turn."""
    end = len(text.rstrip())
    for count in range(_MOST_STOPS):
        stop = next((stop for stop in _STOPS if text.endswith(stop, 0, end)), None)
        if stop is None:
            return end if count else len(text)
        end -= len(stop)
    return end
