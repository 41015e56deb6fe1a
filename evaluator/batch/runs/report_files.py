"""Files written by `warpgrade report`."""

import functools
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from evaluator.batch.runs.results import Results, RunEntry
from evaluator.errors import UsageError
from evaluator.files.card_files import file_here, write_whole
from evaluator.records import Scorecard, Status
from evaluator.report.card.feedback import feedback
from evaluator.report.ci.verdicts import Location, Verdict, verdict_of
from evaluator.report.run.exports import COLUMNS, ExplainedSample, GradedSample, Row, documents, junit, write_rows
from evaluator.report.run.run_tables import MOST_FAILED
from evaluator.text import counted, one_line

_LONGEST_STEP = 1000
_BODY = 2000
"""Maximum length of the feedback in a report, in characters."""


def failed(results: Results) -> list[ExplainedSample]:
    """Return all incorrect submissions; at the end the refused inputs by cause, then the missing cards."""
    incorrect = [entry for entry in results.entries if not entry.sample.correct]
    incorrect.sort(key=lambda entry: (entry.sample.status is None, entry.refused is None))
    counts_by_cause = Counter(entry.refused.cause for entry in incorrect if entry.refused is not None)
    failures: list[ExplainedSample] = []
    for entry in incorrect:
        count = 1 if entry.refused is None else counts_by_cause.pop(entry.refused.cause, 0)
        if count:
            first = _failed(entry, detailed=len(failures) < MOST_FAILED)
            more = f"; {counted(count - 1, 'more input')} like this" if count > 1 else ""
            failures.append(first._replace(reason=first.reason + more))
    return failures


def _failed(entry: RunEntry, *, detailed: bool) -> ExplainedSample:
    card = entry.read_card() if detailed else None
    reason = card.reason.message if card is not None and card.reason is not None else ""
    if entry.row is None:
        reason = entry.reason_text
    return ExplainedSample(entry.sample, reason, _body(card))


def _body(card: Scorecard | None) -> str:
    return "" if card is None or card.status is Status.CORRECT else feedback(card, characters=_BODY)


def next_step(results: Results) -> str | None:
    """Return the commands for a closer look: at the first incorrect card, else the first, and at the run."""
    graded = [entry for entry in results.entries if entry.row is not None]
    first = next((entry for entry in graded if not entry.sample.correct), next(iter(graded), None))
    if first is None or first.row is None:
        return None  # refused inputs alone: the list of failures has the reasons
    card, run = shlex.quote(str(first.cards / first.row.card)), shlex.quote(str(results.folder))
    return one_line(f"warpgrade show {card}, or warpgrade view {run}", _LONGEST_STEP)


def verdicts(results: Results) -> Iterator[Verdict]:
    """Read the card of each submission, and return its verdict. The cards are read in order."""
    for entry in results.entries:
        card, sample = entry.read_card(), entry.sample
        path = None if entry.origin is None else file_here(entry.origin)
        if card is not None:
            yield verdict_of(card, path)
            continue
        location = None if path is None else Location(path, None)
        refusal = None if entry.refused is None else entry.refused.reason
        yield Verdict(sample.problem, sample.name, None, location, refusal=refusal)


def write_submissions(results: Results, path: Path) -> None:
    """Write one row for each submission. Raises UsageError if the file cannot be written."""
    _checked_write(path, lambda: write_rows(path, map(_submission_row, results.entries)))


def _submission_row(entry: RunEntry) -> Row:
    sample, row = entry.sample, entry.row
    of_card = {name: getattr(row, name, None) for name in COLUMNS}
    of_sample = {name: getattr(sample, name) for name in ("problem", "level", "name", "reason", "built")}
    return {
        **of_card,
        **of_sample,
        "status": entry.status_text,
        "problem_sha256": entry.problem_sha256,
        "submission_sha256": getattr(row or entry.planned, "submission_sha256", None),
        "origin": entry.origin,
        "host_bound": sample.host_bound if sample.submission_calls else None,
        "refusal": entry.refused.reason if entry.refused else None,
        "benchmark_correct": sample.benchmark_correct,
        "benchmark_rule": sample.benchmark_rule.value if sample.benchmark_correct is not None else None,
    }


def write_junit(results: Results, path: Path) -> None:
    """Write JUnit XML. Raises UsageError if the file cannot be written."""
    _checked_write(path, lambda: path.write_bytes(junit(map(_case, results.entries), str(results.folder))))


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
    export = documents(
        GradedSample(entry.sample.problem, entry.sample.name, entry.read_card())
        for entry in results.entries
        if entry.sample.level is not None
    )
    contents: dict[Path, object] = {
        folder / f"level{level}" / "eval_results.json": document for level, document in export.results.items()
    }
    baseline = folder / "baseline.json"
    if export.baseline is None:
        _checked_write(baseline, functools.partial(baseline.unlink, missing_ok=True))
    else:
        contents[baseline] = export.baseline
    for path, document in contents.items():
        content = msgspec.json.format(msgspec.json.encode(document), indent=4) + b"\n"
        _checked_write(path, functools.partial(write_whole, path, content))
    return Written(list(contents), export.left_out, export.unquoted)


def _checked_write(path: Path, write: Callable[[], object]) -> None:
    try:
        write()
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _case(entry: RunEntry) -> ExplainedSample:
    sample = entry.sample
    body = "" if sample.correct else _body(entry.read_card())
    return ExplainedSample(sample, entry.reason_text, body, entry.row.wall_s if entry.row else 0.0)
