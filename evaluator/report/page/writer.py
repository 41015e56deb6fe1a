"""Rows of a run's page, the templates of all pages, their content security policy, and the bounds of a page's size.

The policy permits a single style and a single script, by hash. Unescaped text could neither run nor load anything.
"""

import base64
import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from evaluator.report.page.detail import Detail
from evaluator.report.run.intervals import factor
from evaluator.report.run.summary import RunSample
from evaluator.text import counted, one_line, printable

if TYPE_CHECKING:
    from jinja2 import Environment


LONGEST_NAME = 200
_LONGEST_FRAGMENT = 300


class PageEntry(NamedTuple):
    """One submission's row. `made` changes with the card: an open page keeps the rows of unchanged cards."""

    sample: RunSample
    reason: str
    wall_s: float
    detail: Detail | None
    made: str = ""


class Best(NamedTuple):
    """A problem with the fastest correct submission; None if no submission is correct."""

    problem: str
    samples: int
    correct: int
    sample: RunSample | None


def fragment(kind: str, problem: str, name: str | None = None) -> str:
    """Return the fragment of a link to a problem or submission: equal in all pages. A long name ends with a hash.

    >>> fragment("s", "level1/relu", "a <b>/c")
    's/level1/relu/a%20%3Cb%3E%2Fc'
    """
    quoted = quote(problem, errors="replace")
    if name is not None:
        quoted += f"/{quote(name, safe='', errors='replace')}"
    if len(quoted) > _LONGEST_FRAGMENT:
        digest = hashlib.sha256(f"{problem}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()
        quoted = f"{quoted[:_LONGEST_FRAGMENT]}-{digest[:16]}"
    return f"{kind}/{quoted}"


def shown_name(name: str) -> str:
    """Return a name of a problem or submission as the page shows it."""
    return one_line(name, LONGEST_NAME)


def best_by_problem(samples: Iterable[RunSample]) -> list[Best]:
    """Return the best submission to each problem, in the order of the problems' first submissions.

    The best has the largest speedup; without any speedup, the first correct submission is the best.
    """
    by_problem: dict[str, list[RunSample]] = {}
    for sample in (sample for sample in samples if sample.level is not None):
        by_problem.setdefault(sample.problem, []).append(sample)
    best = []
    for problem, group in by_problem.items():
        correct = [sample for sample in group if sample.correct]
        fastest = max(correct, key=lambda sample: sample.speedup or 0.0, default=None)
        best.append(Best(problem, len(group), len(correct), fastest))
    return best


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
    environment.filters |= {"name": shown_name, "times": factor, "counted": counted}
    environment.globals["fragment"] = fragment
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
