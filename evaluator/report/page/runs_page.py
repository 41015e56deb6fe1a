"""Several runs as a single HTML file: rates, curves of fast_p in one chart, and a table of problems by runs."""

from collections import Counter
from collections.abc import Iterator, Sequence

from evaluator.report.page.charts import Curve, fast_curves
from evaluator.report.page.entries import fragment
from evaluator.report.page.writer import page_pieces
from evaluator.report.run.run_columns import Agreement, NamedRun, by_problem, heading, rates


class ProblemRow(Agreement):
    """Row of a problem on the page."""

    @property
    def fragment(self) -> str:
        """Fragment of a link to the problem."""
        return fragment("p", self.problem)


def runs_page(runs: Sequence[NamedRun]) -> Iterator[bytes]:
    """Yield the parts of the page."""
    timed = [run for run in runs if run.section.device.timed]
    rows = [ProblemRow(*each) for each in by_problem(runs)]
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
