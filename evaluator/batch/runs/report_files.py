"""Files written by `warpgrade report`."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.batch.runs.results import Entry, Results
from evaluator.errors import CardError, UsageError
from evaluator.files.card_files import read_card, write_whole
from evaluator.findings import ENTRIES, Code
from evaluator.records import Scorecard
from evaluator.report.run.html import Detail, PageEntry, detail_of, write_page
from evaluator.report.run.junit import Case, junit
from evaluator.report.run.kernelbench import Graded, documents
from evaluator.report.run.run_tables import Failed
from evaluator.report.run.summary import MISSING, sections


def failed(results: Results) -> list[Failed]:
    """Return all submissions that are not correct. Missing cards come last: they say nothing about a submission."""
    found = [entry for entry in results.entries if not entry.sample.correct]
    found.sort(key=lambda entry: entry.sample.status is None)
    return [
        Failed(entry.sample.name, entry.sample.problem, _status(entry), (entry.row and entry.row.reason) or "")
        for entry in found
    ]


def write_junit(results: Results, path: Path) -> None:
    """Write JUnit XML. Raises UsageError if the file cannot be written."""
    _written(path, lambda: path.write_bytes(junit(map(_case, results.entries), str(results.folder))))


def write_html(results: Results, path: Path) -> None:
    """Write one HTML file with all submissions. Raises UsageError if the file cannot be written."""
    said = sections(results.samples, results.asked)
    _written(path, lambda: write_page(path, f"Run {results.folder.resolve().name}", said, _pages(results)))


class Written(NamedTuple):
    """Paths of the written files, and the numbers of left-out and unquoted submissions, as in `Documents`."""

    paths: list[Path]
    left_out: int
    unquoted: int


def write_kernelbench(results: Results, folder: Path) -> Written:
    """Write `levelN/eval_results.json` below `folder` for each level, and `baseline.json`.

    Without any timed grade, `baseline.json` is not written, and an earlier file is removed.

    Raises:
        UsageError: no problem comes from KernelBench, or a file cannot be written.
    """
    made = documents(Graded(entry.sample.problem, entry.sample.name, _card(entry)) for entry in results.entries)
    written: dict[Path, object] = {
        folder / f"level{level}" / "eval_results.json": document for level, document in made.results.items()
    }
    baseline = folder / "baseline.json"
    if made.baseline is None:
        _written(baseline, functools.partial(baseline.unlink, missing_ok=True))
    else:
        written[baseline] = made.baseline
    for path, document in written.items():
        content = msgspec.json.format(msgspec.json.encode(document), indent=4) + b"\n"
        _written(path, functools.partial(write_whole, path, content))
    return Written(list(written), made.left_out, made.unquoted)


def _written(path: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


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
            status=_status(entry),
            reason=_reason(entry),
            speedup=sample.speedup,
            wall_s=row.wall_s if row else 0.0,
            detail=_detail(entry),
        )


def _detail(entry: Entry) -> Detail | None:
    card = _card(entry)
    return None if card is None else detail_of(card)


def _card(entry: Entry) -> Scorecard | None:
    """Read the full card; None if the card is missing or unreadable."""
    if entry.row is None:
        return None
    try:
        return read_card(entry.cards / entry.row.card, entry.cards)
    except CardError:
        return None


def _status(entry: Entry) -> str:
    status = entry.sample.status
    return status.value if status else MISSING


def _reason(entry: Entry) -> str:
    code = entry.row.reason if entry.row else None
    if code is None:
        return ""
    return f"{code} {ENTRIES[Code(code)].title}" if code in set(Code) else code
