"""The part of YAML that tasks of other benchmarks use: no library is needed, and no object is constructed.

Mappings and lists by indentation, flow mappings and lists on one line, quoted and plain scalars, block scalars (`|` and
`>`), comments. Anything else (anchors, tags, several documents, scalars over several lines) is an error with the line.
"""

import ast
import re
from typing import Any, NamedTuple

from evaluator.errors import ProblemError

_ENTRY = re.compile(r"""(?P<key>"[^"\\]*"|'[^']*'|[A-Za-z_][\w .-]*?)[ \t]*:(?:[ \t]+(?P<value>.*))?$""")
_BLOCK = re.compile(r"(?P<style>[|>])[+-]?[ \t]*(?:#.*)?$")
_TOKEN = re.compile(
    r"""[ \t]*(?:(?P<mark>[][{},:])|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^']|'')*)'|(?P<comment>\#.*)"""
    r"""|(?P<plain>[^][{},:"'\#\s&*!|>%@`](?:[^][{},:\#]|(?<!\s)\#|:(?!\s|$))*))"""
)
_WORDS = {"true": True, "false": False, "null": None, "~": None}
_MOST_DEPTH = 20
_MOST_LINES = 20_000


class _Line(NamedTuple):
    """A line with content: number from 1, indentation, and text without indentation."""

    number: int
    indent: int
    text: str


class _Parser:
    """Recursive descent over the lines of a text."""

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        self._raw = text.split("\n")
        self._at = 0
        if len(self._raw) > _MOST_LINES:
            raise ProblemError(f"{where}: more than {_MOST_LINES} lines")

    def document(self) -> Any:
        line = self._next()
        if line is not None and line.text == "---":
            self._at = line.number
            line = self._next()
        value = None if line is None else self._block(line.indent, 0)
        if (rest := self._next()) is not None:
            raise self._error(rest.number, "not expected at this indentation")
        return value

    def _error(self, number: int, message: str) -> ProblemError:
        hint = "Warpgrade reads mappings, lists and scalars of YAML, with flow collections on one line"
        return ProblemError(f"{self._where}, line {number}: {message}", hint=hint)

    def _next(self) -> _Line | None:
        """Return the next line with content, and stay before it."""
        while self._at < len(self._raw):
            text = self._raw[self._at].rstrip()
            content = text.lstrip(" ")
            if content and not content.startswith("#"):
                return _Line(self._at + 1, len(text) - len(content), content)
            self._at += 1
        return None

    def _block(self, indent: int, depth: int) -> Any:
        """Return the mapping or list whose entries have this indentation."""
        if depth > _MOST_DEPTH:
            raise self._error(self._at + 1, "nested too deeply")
        entries: dict[str, Any] = {}
        items: list[Any] = []
        while (line := self._next()) is not None and line.indent == indent:
            is_item = line.text == "-" or line.text.startswith("- ")
            entry = None if is_item else _ENTRY.match(line.text)
            if entry is None and not is_item:
                raise self._error(line.number, "neither `key: value` nor `- item`")
            if entries if is_item else items:
                break
            self._at = line.number
            if entry is None:
                items.append(self._value(line, line.text[1:].strip(), depth))
                continue
            key = entry["key"].strip("\"'")
            if key in entries:
                raise self._error(line.number, f"{key[:80]!r} is there twice")
            entries[key] = self._value(line, entry["value"] or "", depth, is_entry=True)
        return items or entries

    def _value(self, line: _Line, text: str, depth: int, *, is_entry: bool = False) -> Any:
        """Return the value whose text follows a key or a dash, maybe in the next lines."""
        if (block := _BLOCK.match(text)) is not None:
            return self._scalar_of_lines(line.indent, " " if block["style"] == ">" else "\n")
        if text and not text.startswith("#"):
            try:
                return _flow(text)
            except ValueError as error:
                raise self._error(line.number, str(error)) from error
        below = self._next()
        # A list may have the indentation of its key.
        if below is not None and (
            below.indent > line.indent or (is_entry and below.indent == line.indent and below.text.startswith("- "))
        ):
            return self._block(below.indent, depth + 1)
        return None

    def _scalar_of_lines(self, indent: int, separator: str) -> str:
        lines = []
        while self._at < len(self._raw):
            text = self._raw[self._at].rstrip()
            if text and len(text) - len(text.lstrip(" ")) <= indent:
                break
            lines.append(text)
            self._at += 1
        margin = min((len(text) - len(text.lstrip(" ")) for text in lines if text), default=0)
        return separator.join(text[margin:] for text in lines).strip("\n ")


def _flow(text: str) -> Any:
    """Return the scalar or the flow collection of one line, maybe with a comment. Raises ValueError."""
    parts, at = [], 0
    while at < len(text.rstrip()):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"cannot read {text[at:][:80]!r}")
        at = token.end()
        match token.lastgroup:
            case "mark":
                parts.append(token["mark"])
            case "double":
                parts.append(repr(token["double"].replace('\\"', '"').replace("\\\\", "\\")))
            case "single":
                parts.append(repr(token["single"].replace("''", "'")))
            case "plain":
                parts.append(repr(_plain(token["plain"].strip())))
            case _:
                pass  # A comment.
    try:
        return ast.literal_eval(" ".join(parts))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text[:80]!r} is no scalar, list or mapping") from error


def _plain(text: str) -> Any:
    """Return a plain scalar: a word of YAML, a number, or a text."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    return text


def parsed_yaml(text: str, where: str) -> Any:
    """Return the value of a text in YAML; `where` names the file.

    Raises:
        ProblemError: the text is no YAML, or of a form that is not read; the message names the line.
    """
    return _Parser(text.replace("\r\n", "\n"), where).document()
