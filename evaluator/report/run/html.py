"""A run as a single HTML file: no network, no other file, and only escaped text of submissions.

The page's content security policy permits one style and one script by hash. Even unescaped text could neither run nor
load anything.
"""

import base64
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from evaluator.protocol.submission_files import LONGEST_LABEL, parts, place_of
from evaluator.records import Finding, Samples, Scorecard
from evaluator.report.layout.text import duration, one_line, printable, significant
from evaluator.report.run.charts import Speedup, fast_curve, speedup_chart
from evaluator.report.run.run_tables import described
from evaluator.report.run.summary import Section
from evaluator.report.timeline.page_section import TimelineSection

_FOLDER = Path(__file__).parent
_DETAILS_BYTES = 32 << 20
_MOST_SAMPLES = 200
_COLOURED_CHARACTERS = 2 << 20
"""Characters of code with colours: about four seconds of work. Further code is plain."""
_MOST_FRAMES = 8
_LONGEST_FRAME = 2000


class Frame(NamedTuple):
    """An error of the compiler: its place, its message, and the line of code."""

    place: str
    message: str
    line: str


class Detail(NamedTuple):
    """Collapsed details below a submission's row.

    `numbers` are the numbers of the source's lines. Each finding has a place in words.
    """

    source: str
    numbers: str
    findings: list[tuple[str, Finding]]
    samples: list[tuple[str, str]]
    output: str
    machine_code: str = ""
    frames: list[Frame] = []

    @property
    def size(self) -> int:
        """Approximate length in characters."""
        said = [text for _, text in self.samples] + [each.message + each.line for each in self.frames]
        return len(self.source) + len(self.output) + sum(map(len, said))


class PageEntry(NamedTuple):
    """One submission's row. `status` is `missing` without a card."""

    problem: str
    level: int
    name: str
    status: str
    reason: str
    speedup: float | None
    wall_s: float
    detail: Detail | None

    @property
    def fragment(self) -> str:
        """The fragment of a link to this submission: the same in every page of the run."""
        return "s/" + quote(f"{self.problem}/{self.name}", errors="replace")

    @property
    def speedup_text(self) -> str:
        """The formatted speedup."""
        return "" if self.speedup is None else f"{significant(self.speedup)}x"


def detail_of(card: Scorecard) -> Detail:
    """Return the details of a card for the page."""
    findings = ([card.reason] if card.reason else []) + list(card.findings)
    sides = [card.timing.reference_before, card.timing.submission] if card.timing else []
    source = card.submission.source
    return Detail(
        source=printable(source),
        numbers="\n".join(_numbers(source)),
        findings=[("" if each.line is None else _place(source, each.line), each) for each in findings],
        samples=[(side.side, _samples(side)) for side in sides],
        output=printable(card.output.text),
        frames=list(_frames(card)),
        machine_code="" if card.machine_code is None else printable(card.machine_code.text),
    )


def _frames(card: Scorecard) -> Iterator[Frame]:
    """Yield the first errors of the compiler."""
    units = [] if card.build is None else [unit for unit in card.build.units if not unit.ok]
    errors = [each for unit in units for each in unit.diagnostics if "error" in each.severity]
    for each in errors[:_MOST_FRAMES]:
        own = each.submission_line
        own_place = None if own is None else _place(card.submission.source, own)
        place = own_place or f"{one_line(each.file, 80)}, line {each.line}"
        yield Frame(place, printable(each.message[:_LONGEST_FRAME]), one_line(each.source_line[:_LONGEST_FRAME], 240))


def _place(source: str, line: int) -> str:
    return one_line(place_of(source, line).label, LONGEST_LABEL)


def _numbers(source: str) -> Iterator[str]:
    """Yield the numbers of a source's lines. Each of several files begins at 1, after a line without number."""
    lines = source.count("\n") + (not source.endswith("\n"))
    marks = [part.lines_before for part in parts(source)]
    for mark, following in itertools.pairwise([0, *marks, lines + 1]):
        yield from [""] * bool(mark)
        yield from map(str, range(1, following - mark))


def _samples(side: Samples) -> str:
    shown = ", ".join(duration(value) for value in side.samples_ms[:_MOST_SAMPLES])
    left = len(side.samples_ms) - _MOST_SAMPLES
    return f"{shown} and {left} more" if left > 0 else shown


def write_page(
    path: Path,
    title: str,
    sections: list[Section],
    entries: Iterable[PageEntry],
    *,
    terms: Sequence[tuple[str, str]] = (),
    speedups: Sequence[Speedup] = (),
    timeline: TimelineSection | None = None,
) -> None:
    """Write the page to `path` incrementally. Details beyond about 32 MiB are omitted, with a note on the page.

    `terms` are the names and values of the run's terms.

    Raises:
        OSError: the file cannot be written.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    # Only these two files, and the charts below, are trusted.
    style, script = (Markup((_FOLDER / f"page.{end}").read_text("utf-8")) for end in ("css", "js"))  # noqa: S704
    environment = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined)
    kept = list(_within(entries))
    page = environment.get_template("page.html.j2").stream(
        title=title,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        terms=terms,
        curve=Markup(fast_curve([each.value for each in speedups], len(kept))),  # noqa: S704
        speedups=Markup(speedup_chart(speedups)),  # noqa: S704
        timeline=timeline,
        drawn=[] if timeline is None else [Markup(each.svg) for each in timeline.sessions],  # noqa: S704
        statuses=Counter(entry.status for entry in kept).most_common(),
        shown=_Colours(),
        sections=[described(section) for section in sections],
        entries=kept,
        left_out=sum(entry.detail is None and entry.status != "missing" for entry in kept),
    )
    page.enable_buffering(64)
    with path.open("wb") as file:
        page.dump(file, encoding="utf-8", errors="replace")


class _Colours:
    """Colours code until the page has enough of it. A page of 10 000 submissions stays small enough to open."""

    def __init__(self) -> None:
        self._left = _COLOURED_CHARACTERS

    def __call__(self, source: str) -> str:
        """Return code, coloured if there is room. Plain text is escaped by the template."""
        from evaluator.report.run.code_colours import coloured

        self._left -= len(source)
        return coloured(source) if self._left >= 0 else source


def _within(entries: Iterable[PageEntry]) -> Iterator[PageEntry]:
    size = 0
    for entry in entries:
        size += entry.detail.size if entry.detail else 0
        yield entry if size <= _DETAILS_BYTES else entry._replace(detail=None)


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
