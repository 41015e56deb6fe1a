"""Put together what `warpgrade report` writes to files."""

from collections.abc import Callable, Iterator
from pathlib import Path

from evaluator.batch.results import Entry, Results
from evaluator.errors import CardError, UsageError
from evaluator.findings import ENTRIES, Code
from evaluator.report.batch_html import Detail, PageEntry, detail_of, write_page
from evaluator.report.batch_junit import Case, junit
from evaluator.report.summary import MISSING, sections
from evaluator.store import read_card


def write_junit(results: Results, path: Path) -> None:
    """Write JUnit XML. Raises UsageError where that cannot be."""
    _written(path, lambda: path.write_bytes(junit(map(_case, results.entries), str(results.folder))))


def write_html(results: Results, path: Path) -> None:
    """Write one HTML file with every submission in it. Raises UsageError where that cannot be."""
    said = sections(results.samples, results.asked)
    _written(path, lambda: write_page(path, f"Run {results.folder.resolve().name}", said, _pages(results)))


def _written(path: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _case(entry: Entry) -> Case:
    sample, row = entry.sample, entry.row
    return Case(sample.problem, sample.name, sample.status, _reason(entry), row.wall_s if row else 0.0)


def _pages(results: Results) -> Iterator[PageEntry]:
    for entry in results.entries:
        sample, row = entry.sample, entry.row
        yield PageEntry(
            problem=sample.problem,
            level=sample.level,
            name=sample.name,
            status=sample.status.value if sample.status else MISSING,
            reason=_reason(entry),
            speedup=sample.speedup,
            wall_s=row.wall_s if row else 0.0,
            detail=_detail(entry),
        )


def _detail(entry: Entry) -> Detail | None:
    """Read a card again for its page; None where it went away meanwhile."""
    if entry.row is None:
        return None
    try:
        return detail_of(read_card(entry.cards / entry.row.card))
    except CardError:
        return None


def _reason(entry: Entry) -> str:
    code = entry.row.reason if entry.row else None
    if code is None:
        return ""
    return f"{code} {ENTRIES[Code(code)].title}" if code in set(Code) else code
