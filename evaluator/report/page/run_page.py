"""A run, or several runs, as a single HTML file: no network, no other file, and only escaped text of submissions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from evaluator.report.page.charts import Curve, Ratio, fast_curves, ratio_chart
from evaluator.report.page.detail import PageCode, code_of
from evaluator.report.page.entries import PageEntry, best_by_problem, fragment
from evaluator.report.page.writer import Room, page_pieces
from evaluator.report.run.run_columns import Agreement, NamedRun, by_problem, heading, rates
from evaluator.report.run.run_tables import MOST_FAILED, described
from evaluator.report.run.summary import MISSING, REFUSED, Section
from evaluator.text import counted

_REFERENCES_CHARACTERS = 4 << 20
_LONGEST_REFERENCE = 64 << 10
_UNGRADED = frozenset({MISSING, REFUSED})


class RunPage(NamedTuple):
    """Content of a page.

    `terms` are the names and values of the run's terms, `references` the source of each problem's reference. `broken`
    counts unreadable and rejected cards. A live page has a `version`, which changes with the run.
    """

    title: str
    sections: Sequence[Section]
    terms: Sequence[tuple[str, str]] = ()
    references: Mapping[str, str] = {}
    broken: int = 0
    version: str = ""


def run_page(page: RunPage, entries: Iterable[PageEntry]) -> Iterator[bytes]:
    """Yield the parts of the page. Details beyond about 32 MiB are omitted, with a note on the page."""
    room = Room()
    rows = [_row(entry, room) for entry in entries]
    graded = [entry for entry, _ in rows]
    failed = sorted((entry for entry in graded if not entry.is_correct), key=lambda entry: entry.status in _UNGRADED)
    # A chart never mixes devices.
    timed = graded if len(page.sections) == 1 else []
    speedups = [_ratio(entry) for entry in timed if entry.is_correct and entry.speedup is not None]
    fastest = sorted(speedups, key=lambda speedup: -speedup.value)
    return page_pieces(
        "run.html.j2",
        is_live=bool(page.version),
        page=page,
        curve=fast_curves([Curve([speedup.value for speedup in speedups], len(graded))]),
        failed=failed[:MOST_FAILED],
        failed_beyond=max(0, len(failed) - MOST_FAILED),
        speedups=ratio_chart(fastest, "Speedups of the fastest submissions with 95 % intervals", "1x: the reference"),
        kinds=Counter(entry.status for entry in graded).most_common(),
        sections=[described(section) for section in page.sections],
        best=best_by_problem(graded),
        references=_codes_within_limit(page.references),
        rows=rows,
        broken=f"{counted(page.broken, 'card')} could not be read or was rejected, and counts as missing."
        if page.broken
        else "",
        left_out=room.left_out,
    )


def _row(entry: PageEntry, room: Room) -> tuple[PageEntry, str]:
    """Return an entry without its detail, and the detail as a part of the page."""
    if entry.detail is None:
        return entry, ""
    html = room.details("detail", entry.detail.size, entry=entry, detail=entry.detail)
    return entry._replace(detail=None), html


def _ratio(entry: PageEntry) -> Ratio:
    return Ratio(f"{entry.problem}/{entry.name}", entry.speedup or 0.0, entry.speedup_low, entry.speedup_high)


def _codes_within_limit(references: Mapping[str, str]) -> dict[str, PageCode]:
    remaining, codes = _REFERENCES_CHARACTERS, {}
    for problem, source in references.items():
        code = code_of(source, _LONGEST_REFERENCE)
        remaining -= len(code.text)
        if remaining >= 0:
            codes[problem] = code
    return codes


class ProblemRow(Agreement):
    """Row of a problem on the page."""

    @property
    def fragment(self) -> str:
        """Fragment of a link to the problem."""
        return fragment("p", self.problem)


def runs_page(runs: Sequence[NamedRun]) -> Iterator[bytes]:
    """Yield the parts of the page."""
    timed = [run for run in runs if run.section.device.timed]
    rows = [ProblemRow(*fields) for fields in by_problem(runs)]
    return page_pieces(
        "runs.html.j2",
        title=heading(runs),
        tables=rates(runs),
        curves=fast_curves([Curve(run.speedups, run.section.total.samples) for run in timed]),
        names=[run.name for run in timed],
        columns=[run.name for run in runs],
        kinds=Counter(row.kind for row in rows).most_common(),
        rows=rows,
        left_out=0,
    )
