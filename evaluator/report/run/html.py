"""A run as a single HTML file: no network, no other file, and only escaped text of submissions.

The page's content security policy permits one style and one script by hash. Even unescaped text could neither run nor
load anything.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from evaluator.records import Finding, Samples, Scorecard
from evaluator.report.layout.text import duration, printable, significant
from evaluator.report.run.run_tables import described
from evaluator.report.run.summary import Section

_FOLDER = Path(__file__).parent
_DETAILS_BYTES = 32 << 20
_MOST_SAMPLES = 200


class Detail(NamedTuple):
    """Collapsed details below a submission's row."""

    source: str
    findings: list[Finding]
    samples: list[tuple[str, str]]
    output: str
    machine_code: str = ""

    @property
    def size(self) -> int:
        """Approximate length in characters."""
        return len(self.source) + len(self.output) + sum(len(text) for _, text in self.samples)


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
    def speedup_text(self) -> str:
        """The formatted speedup."""
        return "" if self.speedup is None else f"{significant(self.speedup)}x"


def detail_of(card: Scorecard) -> Detail:
    """Return the details of a card for the page."""
    findings = ([card.reason] if card.reason else []) + list(card.findings)
    sides = [card.timing.reference_before, card.timing.submission] if card.timing else []
    return Detail(
        source=printable(card.submission.source),
        findings=findings,
        samples=[(side.side, _samples(side)) for side in sides],
        output=printable(card.output.text),
        machine_code="" if card.machine_code is None else printable(card.machine_code.text),
    )


def _samples(side: Samples) -> str:
    shown = ", ".join(duration(value) for value in side.samples_ms[:_MOST_SAMPLES])
    left = len(side.samples_ms) - _MOST_SAMPLES
    return f"{shown} and {left} more" if left > 0 else shown


def write_page(path: Path, title: str, sections: list[Section], entries: Iterable[PageEntry]) -> None:
    """Write the page to `path` incrementally. Details beyond about 32 MiB are omitted, with a note on the page.

    Raises:
        OSError: the file cannot be written.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    # Only these two files are trusted.
    style, script = (Markup((_FOLDER / f"page.{end}").read_text("utf-8")) for end in ("css", "js"))  # noqa: S704
    environment = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined)
    kept = list(_within(entries))
    page = environment.get_template("page.html.j2").stream(
        title=title,
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        sections=[described(section) for section in sections],
        entries=kept,
        left_out=sum(entry.detail is None and entry.status != "missing" for entry in kept),
    )
    page.enable_buffering(64)
    with path.open("wb") as file:
        page.dump(file, encoding="utf-8", errors="replace")


def _within(entries: Iterable[PageEntry]) -> Iterator[PageEntry]:
    size = 0
    for entry in entries:
        size += entry.detail.size if entry.detail else 0
        yield entry if size <= _DETAILS_BYTES else entry._replace(detail=None)


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
