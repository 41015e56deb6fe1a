"""Two runs as a single HTML file: changed verdicts and speeds, with the code and evidence of both runs side by side."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from evaluator.report.page.charts import MOST_ROWS, Ratio, ratio_chart
from evaluator.report.page.detail import Detail
from evaluator.report.page.entries import fragment
from evaluator.report.page.writer import Room, page_pieces
from evaluator.report.run.comparison_screen import summary_lines
from evaluator.report.run.intervals import Estimate
from evaluator.report.run.run_comparison import ComparedSubmission, Comparison, SubmissionPair
from evaluator.report.run.run_tables import TextTable
from evaluator.report.run.summary import MISSING
from evaluator.text import ratio

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
    """Row of a submission. A submission of a single run is unpaired, with an empty status for the missing run."""

    problem: str
    name: str
    change: str
    before: str
    after: str
    speedup_before: float | None
    speedup_after: float | None
    faster: Estimate | None
    measured_differently: bool = False

    @property
    def fragment(self) -> str:
        """Fragment of a link to the submission: equal to the fragment in the page of a run."""
        return fragment("s", self.problem, self.name)

    @property
    def faster_text(self) -> str:
        """The ratio of speedups with the interval."""
        if self.faster is None:
            return ""
        low, high = self.faster.low, self.faster.high
        between = "" if low is None or high is None else f" ({ratio(low)}x to {ratio(high)}x)"
        differently = ", measured differently" if self.measured_differently else ""
        return f"{ratio(self.faster.value)}x{between}{differently}"


def comparison_page(
    comparison: Comparison, before: ComparedRun, after: ComparedRun, rates: Sequence[TextTable], evidence: Evidence
) -> Iterator[bytes]:
    """Yield the parts of the page. Details beyond about 32 MiB are omitted, with a note on the page."""
    room, pair_rows = Room(), list(_rows(comparison))
    timed = any(row.speedup_before is not None or row.speedup_after is not None for row in pair_rows)
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
        yield _row(pair, pair.change.value, pair.faster)
    for unpaired in comparison.only_before:
        yield _row(SubmissionPair(unpaired, unpaired), UNPAIRED, None)._replace(after="", speedup_after=None)
    for unpaired in comparison.only_after:
        yield _row(SubmissionPair(unpaired, unpaired), UNPAIRED, None)._replace(before="", speedup_before=None)


def _row(pair: SubmissionPair, change: str, faster: Estimate | None) -> PairRow:
    before, after = pair
    return PairRow(
        before.problem,
        before.name,
        change,
        _status(before),
        _status(after),
        before.speedup,
        after.speedup,
        faster,
        pair.measured_differently,
    )


def _status(side: ComparedSubmission) -> str:
    return side.status.value if side.status else MISSING


def _details(row: PairRow, evidence: Evidence, room: Room, columns: int) -> str:
    before, after = evidence(row.problem, row.name)
    size = sum(detail.size for detail in (before, after) if detail is not None)
    return room.details("pair", size, pair=row, before=before, after=after, columns=columns) if size else ""


def _different_terms(before: ComparedRun, after: ComparedRun) -> Iterator[tuple[str, str, str]]:
    """Yield the terms with different values in the runs."""
    first, second = dict(before.terms), dict(after.terms)
    for name in dict.fromkeys([*first, *second]):
        if first.get(name) != second.get(name):
            yield name, first.get(name, ""), second.get(name, "")


def _verdicts(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Return how many submissions went from each status to each."""
    counts = Counter((_status(before), _status(after)) for before, after in comparison.pairs)
    return [(before, after, str(count)) for (before, after), count in counts.most_common()]


def _largest(comparison: Comparison) -> list[Ratio]:
    """Return the largest changes of speed, the fastest first."""
    estimates = [(pair, pair.faster) for pair in comparison.pairs]
    changed = [
        Ratio(f"{pair.before.problem}/{pair.before.name}", faster.value, faster.low, faster.high)
        for pair, faster in estimates
        if faster is not None
    ]
    changed.sort(key=lambda row: -abs(math.log(row.value)))
    return sorted(changed[:MOST_ROWS], key=lambda row: -row.value)
