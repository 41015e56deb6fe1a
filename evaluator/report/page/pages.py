"""Pages of a run, of several runs, and of a comparison."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from evaluator.report.card.measurement import CaseRow
from evaluator.report.page.charts import MOST_ROWS, Curve, Ratio, fast_curves, ratio_chart
from evaluator.report.page.detail import Detail, PageCode, code_of
from evaluator.report.page.writer import PageEntry, Room, best_by_problem, page_pieces
from evaluator.report.run.intervals import Estimate
from evaluator.report.run.run_comparison import Comparison, Pair, case_pairs, measured_differently
from evaluator.report.run.run_tables import MOST_FAILED, TextTable, described
from evaluator.report.run.several_runs import NamedRun, by_problem, heading, rates, summary_lines
from evaluator.report.run.summary import CaseSample, RunSample, Section
from evaluator.text import counted, speedup_text

_REFERENCES_CHARACTERS = 4 << 20
_LONGEST_REFERENCE = 64 << 10


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
    samples = [entry.sample for entry, _ in rows]
    failed = sorted(
        (entry for entry, _ in rows if not entry.sample.correct), key=lambda entry: entry.sample.status is None
    )
    # A chart never mixes devices.
    timed = samples if len(page.sections) == 1 else []
    speedups = [
        Ratio(f"{sample.problem}/{sample.name}", sample.speedup, sample.speedup_low, sample.speedup_high)
        for sample in timed
        if sample.correct and sample.speedup is not None
    ]
    fastest = sorted(speedups, key=lambda speedup: -speedup.value)
    return page_pieces(
        "run.html.j2",
        is_live=bool(page.version),
        page=page,
        curve=fast_curves([Curve([speedup.value for speedup in speedups], len(samples))]),
        failed=failed[:MOST_FAILED],
        failed_beyond=max(0, len(failed) - MOST_FAILED),
        speedups=ratio_chart(fastest, "Speedups of the fastest submissions with 95 % intervals", "1x: the reference"),
        kinds=Counter(sample.status_text for sample in samples).most_common(),
        sections=[described(section) for section in page.sections],
        best=best_by_problem(samples),
        references=_codes_within_limit(page.references),
        rows=rows,
        broken=f"{counted(page.broken, 'card')} could not be read or was rejected, and counts as missing."
        if page.broken
        else "",
        left_out=room.left_out,
    )


def _row(entry: PageEntry, room: Room) -> tuple[PageEntry, str]:
    if entry.detail is None:
        return entry, ""
    html = room.details("detail", entry.detail.size, entry=entry, detail=entry.detail)
    return entry._replace(detail=None), html


def _codes_within_limit(references: Mapping[str, str]) -> dict[str, PageCode]:
    remaining, codes = _REFERENCES_CHARACTERS, {}
    for problem, source in references.items():
        code = code_of(source, _LONGEST_REFERENCE)
        remaining -= len(code.text)
        if remaining >= 0:
            codes[problem] = code
    return codes


def runs_page(runs: Sequence[NamedRun]) -> Iterator[bytes]:
    """Yield the parts of the page."""
    timed = [run for run in runs if run.section.device.timed]
    rows = by_problem(runs)
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


UNPAIRED = "unpaired"
_VERDICT_COLUMNS = ("problem", "submission", "change", "first run", "second run")
_SPEED_COLUMNS = ("first speedup", "second speedup", "second to first")

Evidence = Callable[[str, str], tuple[Detail | None, Detail | None]]
"""Returns the details of both runs for a submission, by problem and name; None without a card."""


class ComparedRun(NamedTuple):
    """Title of a run, and the names and values of the run's terms."""

    title: str
    terms: list[tuple[str, str]]


class PairRow(NamedTuple):
    """Row of a submission. A submission of a single run is unpaired."""

    sample: RunSample
    before: RunSample | None
    after: RunSample | None
    change: str = UNPAIRED
    faster: Estimate | None = None
    measured_differently: bool = False
    cases: Sequence[Pair[CaseSample]] = ()

    @property
    def faster_text(self) -> str:
        """The ratio of speedups with the interval."""
        if self.faster is None:
            return ""
        return f"{speedup_text(*self.faster)}{', measured differently' if self.measured_differently else ''}"


def comparison_page(
    comparison: Comparison, before: ComparedRun, after: ComparedRun, rates: Sequence[TextTable], evidence: Evidence
) -> Iterator[bytes]:
    """Yield the parts of the page. Details beyond about 32 MiB are omitted, with a note on the page."""
    room, pair_rows = Room(), list(_rows(comparison))
    timed = any(side is not None and side.speedup is not None for row in pair_rows for side in (row.before, row.after))
    columns = [*_VERDICT_COLUMNS, *(_SPEED_COLUMNS if timed else [])]
    rows = [(row, _details(row, evidence, room, len(columns))) for row in pair_rows]
    return page_pieces(
        "comparison.html.j2",
        before=before,
        after=after,
        rates=rates,
        timed=timed,
        columns=columns,
        summary_lines=summary_lines(comparison),
        terms=list(_different_terms(before, after)),
        verdicts=_verdicts(comparison),
        ratio_chart=ratio_chart(_largest(comparison), "Largest changes of speed with 95 % intervals", "1x: no change"),
        kinds=Counter(row.change for row, _ in rows).most_common(),
        rows=rows,
        left_out=room.left_out,
    )


def _rows(comparison: Comparison) -> Iterator[PairRow]:
    for pair in comparison.pairs:
        differently, cases = measured_differently(pair), case_pairs(pair)
        yield PairRow(pair.before, *pair, pair.change.value, pair.faster, differently, cases)
    yield from (PairRow(sample, sample, None) for sample in comparison.only_before)
    yield from (PairRow(sample, None, sample) for sample in comparison.only_after)


def _details(row: PairRow, evidence: Evidence, room: Room, columns: int) -> str:
    before, after = evidence(row.sample.problem, row.sample.name)
    size = sum(detail.size for detail in (before, after) if detail is not None)
    cases = _case_rows(row.cases, before, after)
    return (
        room.details("pair", size, pair=row, before=before, after=after, cases=cases, columns=columns) if size else ""
    )


def _case_rows(pairs: Sequence[Pair[CaseSample]], before: Detail | None, after: Detail | None) -> list[list[str]]:
    """Return case, axes, weight, result of each run, ratio of the speedups and change for each case of both runs."""
    if before is None or after is None:
        return []
    compared = {case.before.name: case for case in pairs}
    first, second = ({row.name: row for row in detail.cases.rows} for detail in (before, after))
    return [
        [
            name,
            row.axes,
            row.weight,
            _case_cell(row),
            _case_cell(second[name]),
            "" if (pair := compared[name]).faster is None else speedup_text(*pair.faster),
            pair.change.value,
        ]
        for name, row in first.items()
        if name in second and name in compared
    ]


def _case_cell(row: CaseRow) -> str:
    """Return the time of a call and the speedup, or the result of a case without times."""
    return f"{row.submission}, {row.result}" if row.submission else row.result


def _different_terms(before: ComparedRun, after: ComparedRun) -> Iterator[tuple[str, str, str]]:
    first, second = dict(before.terms), dict(after.terms)
    for name in dict.fromkeys([*first, *second]):
        if first.get(name) != second.get(name):
            yield name, first.get(name, ""), second.get(name, "")


def _verdicts(comparison: Comparison) -> list[tuple[str, str, str]]:
    counts = Counter((before.status_text, after.status_text) for before, after in comparison.pairs)
    return [(before, after, str(count)) for (before, after), count in counts.most_common()]


def _largest(comparison: Comparison) -> list[Ratio]:
    estimates = [(pair, pair.faster) for pair in comparison.pairs]
    changed = [
        Ratio(f"{pair.before.problem}/{pair.before.name}", faster.value, faster.low, faster.high)
        for pair, faster in estimates
        if faster is not None
    ]
    changed.sort(key=lambda row: -abs(math.log(row.value)))
    return sorted(changed[:MOST_ROWS], key=lambda row: -row.value)
