"""Parts common to all pages: templates, the content security policy, and the bounds of a page's size.

The policy permits a single style and a single script, by hash. Unescaped text could neither run nor load anything.
"""

import base64
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from evaluator.report.page.entries import shown_name, times
from evaluator.text import counted, printable

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER = Path(__file__).parent / "templates"
DETAILS_BYTES = 32 << 20
"""Limit of all details of a page."""


class Room:
    """Remaining space for details. A page of 10 000 submissions stays small enough to open."""

    def __init__(self) -> None:
        self.left_out = 0
        self._bytes = DETAILS_BYTES

    def details(self, macro: str, size: int, **content: Any) -> Markup:
        """Return the details of `content`, made by the macro; nothing if the details do not fit."""
        if size <= self._bytes:
            html: Markup = getattr(_parts(), macro)(**content)
            length = len(html.encode("utf-8", "replace"))
            if length <= self._bytes:
                self._bytes -= length
                return html
        self.left_out += 1
        return Markup("")


def page_pieces(template: str, *, is_live: bool = False, **content: Any) -> Iterator[bytes]:
    """Yield the parts of a page. A live page may ask the page's own server for news."""
    style, script = _trusted("page.css"), _trusted("code_colours.js") + _trusted("page.js")
    stream = (
        _environment()
        .get_template(template)
        .stream(
            style=style,
            script=script,
            style_hash=_hash(style),
            script_hash=_hash(script),
            is_live=is_live,
            **content,
        )
    )
    stream.enable_buffering(64)
    for piece in stream:
        yield piece.encode("utf-8", "replace")


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, finalize=_visible
    )
    environment.filters |= {"name": shown_name, "times": times, "counted": counted}
    return environment


def _visible(value: object) -> object:
    """Return text without control characters and marks of direction. Markup is made of such text already."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@functools.cache
def _parts() -> Any:
    return _environment().get_template("parts.html.j2").module


def _trusted(name: str) -> Markup:
    return Markup((_FOLDER / name).read_text("utf-8"))  # noqa: S704 - a file of this package


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
