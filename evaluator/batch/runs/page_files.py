"""HTML pages of runs: the page of a run, and the page of a comparison."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from evaluator.batch.runs.manifest import command_of
from evaluator.batch.runs.results import Results, RunEntry, compare_results, named_runs
from evaluator.catalog import list_problems
from evaluator.errors import ProblemError, UsageError
from evaluator.report.card.measurement import cases_sentence, shows_cases
from evaluator.report.page.detail import Detail, detail_of
from evaluator.report.page.pages import ComparedRun, RunPage, comparison_page, run_page
from evaluator.report.page.writer import PageEntry
from evaluator.report.run.several_runs import rates
from evaluator.text import one_line


def run_page_of(results: Results, version: str = "", problems: Path | None = None) -> Iterator[bytes]:
    """Yield the parts of a run's page. A live page has a `version`. `problems` is as for `references`."""
    page = RunPage(
        title=f"Run {_name(results)}",
        sections=results.sections,
        terms=_run_terms(results),
        references=references(results, problems),
        broken=len(results.broken),
        version=version,
    )
    return run_page(page, map(_page_entry, results.entries))


def comparison_page_of(before: Results, after: Results) -> Iterator[bytes]:
    """Yield the parts of the page of two runs. Raises UsageError if the runs cannot be compared."""
    comparison = compare_results(before, after)
    runs = [ComparedRun(_name(run), _run_terms(run)) for run in (before, after)]
    by_key = [{(entry.sample.problem, entry.sample.name): entry for entry in run.entries} for run in (before, after)]

    def evidence(problem: str, name: str) -> tuple[Detail | None, Detail | None]:
        first, second = (entries.get((problem, name)) for entries in by_key)
        return _detail(first), _detail(second)

    return comparison_page(comparison, runs[0], runs[1], rates(named_runs((before, after))), evidence)


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write the parts of a page to a file. Raises UsageError if the file cannot be written."""
    try:
        with path.open("wb") as file:
            file.writelines(pieces)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def references(results: Results, problems: Path | None) -> dict[str, str]:
    """Return the source of each problem's reference, from the folder `problems` or from the shipped problems.

    The path in the manifest is not followed: the run may come from a stranger. A problem with a changed hash is left
    out.
    """
    if problems is None and results.manifest.problems is not None:
        return {}
    try:
        listed = list_problems(problems).problems
    except ProblemError:
        return {}
    sources = {(problem.name, problem.sha256): problem.source for problem in listed}
    graded = dict.fromkeys(
        (entry.sample.problem, entry.problem_sha256) for entry in results.entries if entry.refused is None
    )
    return {name: sources[name, sha256] for name, sha256 in graded if (name, sha256) in sources}


def _name(results: Results) -> str:
    return one_line(results.folder.resolve().name, 120)


def _run_terms(results: Results) -> list[tuple[str, str]]:
    """Return the terms of the run, and the machine of its first card, without paths of this machine."""
    manifest = results.manifest
    terms = {name: value for name, value in msgspec.to_builtins(manifest.terms).items() if value not in (None, [], ())}
    facts = [(name, str(value)) for name, value in terms.items()]
    facts += [
        ("command", command_of(manifest)),
        ("started", manifest.started_at.replace("T", " ", 1)),
        ("warpgrade", manifest.warpgrade),
        ("torch", manifest.torch),
    ]
    card = next((card for card in (entry.read_card() for entry in results.entries) if card is not None), None)
    if card is not None:
        machine = card.environment
        facts += [("graded on", card.device.name), ("size of the first card", card.problem.size)]
        facts += [("compiler", machine.compiler), ("cores", str(machine.cpu_cores))]
        if card.device.gpu is not None:
            facts.append(("GPU driver", card.device.gpu.driver))
        missing = [] if card.sandbox is None else card.sandbox.missing
        facts.append(("missing sandbox layers", ", ".join(missing) or "none"))
    return [(name, one_line(value, 500)) for name, value in facts]


def _page_entry(entry: RunEntry) -> PageEntry:
    row, card = entry.row, entry.read_card()
    reason = None if card is None else card.reason
    cases = cases_sentence(card.cases) if card is not None and shows_cases(card) else ""
    return PageEntry(
        entry.sample,
        reason=f"{reason.code} {reason.message}" if reason else entry.reason_text or cases,
        wall_s=row.wall_s if row else 0.0,
        detail=None if card is None else detail_of(card),
        made=f"{row.mtime_ns:x}" if row else "",
    )


def _detail(entry: RunEntry | None) -> Detail | None:
    card = None if entry is None else entry.read_card()
    return None if card is None else detail_of(card)
