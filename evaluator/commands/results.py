"""Commands about results: report, view, compare and show."""

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evaluator.commands import terminal, workflow
from evaluator.commands.options import (
    FILE_PATH,
    FOLDER_PATH,
    ResultFormat,
    chosen_format,
    format_option,
    json_option,
    problems_option,
    run_argument,
    trusted_option,
)
from evaluator.commands.terminal import in_workflow
from evaluator.errors import ExitCode, UsageError
from evaluator.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evaluator.batch.runs.results import Results
    from evaluator.report.run.summary import Section
    from evaluator.signatures.signing import Trust

_OF_SEVERAL = (ResultFormat.FULL, ResultFormat.JSON)
"""Formats of a report of several runs."""


@click.command(short_help="Summarise runs: how many submissions are built, correct, fast.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=run_argument)
@json_option
@format_option
@trusted_option
@problems_option
@click.option("--csv", "as_csv", is_flag=True, help="Write CSV to stdout: total, levels, problems.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Write Markdown to stdout.")
@click.option(
    "--submissions",
    type=FILE_PATH,
    metavar="FILE",
    help="Write one row for each submission to FILE: .csv, .json or .parquet.",
)
@click.option("--junit", type=FILE_PATH, metavar="FILE", help="Write JUnit XML to FILE.")
@click.option(
    "--html",
    type=FILE_PATH,
    metavar="FILE",
    help="Write a self-contained HTML page to FILE.",
)
@click.option(
    "--kernelbench",
    type=FOLDER_PATH,
    metavar="DIR",
    help="Write KernelBench's levelN/eval_results.json and the reference's times to DIR.",
)
def report(
    *,
    runs: tuple[Path, ...],
    as_json: bool,
    output_format: str | None,
    as_csv: bool,
    as_markdown: bool,
    submissions: Path | None,
    junit: Path | None,
    html: Path | None,
    kernelbench: Path | None,
    trusted: Path | None,
    problems: Path | None,
) -> ExitCode:
    """Summarise RUN: how many submissions are built, correct and fast, by level and problem.

    Several RUNs are put into one table. RUNs that are the shards of one batch are one run. A submission without a card
    counts as not correct.
    """
    from evaluator.batch.runs import report_files
    from evaluator.batch.runs.results import are_shards, merged, read_each
    from evaluator.report.run import run_tables
    from evaluator.report.run.exports import check_suffix
    from evaluator.signatures.signing import signers

    form = _form(output_format, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown)
    if submissions is not None:
        check_suffix(submissions)
    all_results = read_each(runs, _trust_in(trusted))
    if not are_shards(all_results):
        forms: dict[str, object] = {"--csv": as_csv, f"--output-format {form}": form not in _OF_SEVERAL}
        files = {"--submissions": submissions, "--junit": junit, "--kernelbench": kernelbench}
        _refuse_options_of_one_run(forms | files)
        return _report_of_several(all_results, as_json=form is ResultFormat.JSON, as_markdown=as_markdown, html=html)
    results = merged(all_results)
    summaries = results.sections
    _write_files(results, submissions=submissions, junit=junit, kernelbench=kernelbench)
    if html is not None:
        from evaluator.batch.runs import page_files

        page_files.write_pieces(html, page_files.run_page_of(results, problems=problems))
        _tell_of_references(runs, problems)
    if as_csv:
        terminal.emit(run_tables.csv_text(summaries))
    elif as_markdown:
        terminal.emit(run_tables.markdown(summaries, report_files.failed(results)))
    else:
        _emit_report(results, summaries, form)
    if in_workflow():
        markdown = run_tables.markdown(summaries, report_files.failed(results))
        workflow.publish(report_files.verdicts(results), markdown, annotated=form is ResultFormat.GITHUB)
    for line in signers(results.signatures.values()):
        terminal.tell(line)
    for broken in results.broken:
        terminal.complain("broken", broken)
    if not in_workflow() and (step := report_files.next_step(results)) is not None:
        terminal.tell(f"next: {step}")
    return ExitCode.INFRASTRUCTURE if results.broken else ExitCode.CORRECT


def _form(output_format: str | None, *, as_json: bool, as_csv: bool, as_markdown: bool) -> ResultFormat:
    """Return the format of the report on stdout. Raises UsageError for several formats."""
    form = chosen_format(output_format, as_json=as_json)
    if as_csv + as_markdown + (form is not ResultFormat.FULL) > 1:
        message = "--json, --csv, --markdown and --output-format all write to stdout"
        raise UsageError(message, hint="choose one format")
    return form


def _refuse_options_of_one_run(values: "Mapping[str, object]") -> None:
    """Raise UsageError for a given option that a table of several runs does not have."""
    for option, value in values.items():
        if value:
            raise UsageError(f"{option} is for a single run or the shards of one", hint="name one RUN, or omit it")


def _report_of_several(runs: "list[Results]", *, as_json: bool, as_markdown: bool, html: Path | None) -> ExitCode:
    from evaluator.batch.runs.results import named_runs
    from evaluator.report.run import several_runs

    statistics = named_runs(runs)
    if html is not None:
        from evaluator.batch.runs.page_files import write_pieces
        from evaluator.report.page.pages import runs_page

        write_pieces(html, runs_page(statistics))
    if as_json:
        terminal.emit(terminal.json_text(several_runs.runs_document(statistics)))
    elif as_markdown:
        terminal.emit(several_runs.runs_markdown(statistics))
    else:
        terminal.show(lambda console: several_runs.render_runs(statistics, console))
    broken = [error for run in runs for error in run.broken]
    for error in broken:
        terminal.complain("broken", error)
    first, second = (shlex.quote(str(run.folder)) for run in runs[:2])
    terminal.tell(f"next: warpgrade compare {first} {second}, or warpgrade report {first}")
    return ExitCode.INFRASTRUCTURE if broken else ExitCode.CORRECT


@click.command(short_help="Show a run in the browser, live while its batch runs.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=run_argument)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port on 127.0.0.1.  [default: a free one]",
)
@trusted_option
@problems_option
def view(*, runs: tuple[Path, ...], port: int, trusted: Path | None, problems: Path | None) -> None:
    """Serve the page of RUN on 127.0.0.1, and write its address to stdout. Ctrl-C ends the server.

    The page follows the run. Several RUNs are the shards of one batch. `report --html` writes the same page to a file.
    """
    from evaluator.view.live_run import LiveRun
    from evaluator.view.server import ViewServer

    live = LiveRun(runs, problems=problems, trust=_trust_in(trusted))
    live.page()  # an unreadable run is an error of the command
    _tell_of_references(runs, problems)
    with ViewServer(live, port, terminal.tell) as server:
        terminal.emit(f"{server.address}\n")
        terminal.tell("Ctrl-C ends the server")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    terminal.tell("ended")


def _trust_in(keys: Path | None) -> "Trust":
    """Return the trust in the public keys of a file; without a file, in every signature."""
    from evaluator.signatures.keys import public_keys
    from evaluator.signatures.signing import Trust

    return Trust(None if keys is None else public_keys(keys))


def _tell_of_references(runs: tuple[Path, ...], problems: Path | None) -> None:
    """Say why the page lacks references: only a folder named by the user is read."""
    from evaluator.batch.runs.run_folder import RunFolder

    if problems is None and RunFolder(runs[0]).read_manifest().problems is not None:
        terminal.tell("the page has no references: name the folder of the run's problems with --problems")


def _write_files(results: "Results", *, submissions: Path | None, junit: Path | None, kernelbench: Path | None) -> None:
    from evaluator.batch.runs import report_files

    if submissions is not None:
        report_files.write_submissions(results, submissions)
    if junit is not None:
        report_files.write_junit(results, junit)
    if kernelbench is not None:
        _write_kernelbench(results, kernelbench)


def _emit_report(results: "Results", summaries: "list[Section]", form: ResultFormat) -> None:
    from evaluator.batch.runs import report_files
    from evaluator.report.run import run_tables

    match form:
        case ResultFormat.FULL:
            terminal.show(lambda console: run_tables.render(summaries, console, report_files.failed(results)))
        case ResultFormat.JSON:
            signatures = {card: signature.document() for card, signature in results.signatures.items()}
            terminal.emit(terminal.json_text(run_tables.document(summaries) | {"signatures": signatures}))
        case ResultFormat.CONCISE | ResultFormat.GITHUB:
            workflow.emit_verdicts(report_files.verdicts(results), form)


def _write_kernelbench(results: "Results", folder: Path) -> None:
    from evaluator.batch.runs import report_files

    export = report_files.write_kernelbench(results, folder)
    for path in export.paths:
        terminal.tell(f"wrote {path}")
    if export.left_out:
        terminal.tell(f"skipped: {counted(export.left_out, 'submission')} to problems that are not KernelBench's")
    if export.unquoted:
        terminal.tell(
            f"{counted(export.unquoted, 'correct submission')} without a speedup (T303, C421): both runtimes are -1, "
            "which KernelBench's analysis reads as a speedup of 1"
        )
    if not results.run_device.timed:
        terminal.tell(
            "the run measured no time: every runtime is -1, so ignore fast_p and speedups in KernelBench's analysis"
        )


@click.command(short_help="Compare two runs: regressions, fixes and speed.")
@click.argument("before", metavar="RUN_A", type=run_argument)
@click.argument("after", metavar="RUN_B", type=run_argument)
@click.option(
    "--fail-on",
    multiple=True,
    metavar="RULE",
    help="Exit with 1 if RUN_B is worse: speedup:-5%, correct:-2% (both significant), or status (any).",
)
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a self-contained HTML page to FILE, with code and evidence of both runs.",
)
@json_option
def compare(*, before: Path, after: Path, fail_on: tuple[str, ...], html: Path | None, as_json: bool) -> ExitCode:
    """Compare the submissions of two runs: which broke, which were fixed, and how much faster RUN_B is."""
    from evaluator.batch.runs.results import compare_results, named_runs, read_run
    from evaluator.report.run.run_comparison import failures, parse_rule
    from evaluator.report.run.several_runs import comparison_document, render_comparison

    rules = [parse_rule(rule) for rule in fail_on]
    runs = read_run(before), read_run(after)
    comparison = compare_results(*runs)
    failed, statistics = failures(comparison, rules), named_runs(runs)
    if html is not None:
        from evaluator.batch.runs.page_files import comparison_page_of, write_pieces

        write_pieces(html, comparison_page_of(*runs))
    if as_json:
        terminal.emit(terminal.json_text(comparison_document(comparison, statistics, failed)))
    else:
        terminal.show(lambda console: render_comparison(comparison, statistics, console))
    for reason in failed:
        terminal.tell(f"failed: {reason}")
    return ExitCode.NOT_CORRECT if failed else ExitCode.CORRECT


@click.command("show", short_help="Show a scorecard and the distribution of its samples.")
@click.argument("file", metavar="CARD", type=click.Path(path_type=Path))
def show_card(*, file: Path) -> None:
    """Show the scorecard CARD, and the distribution of both sides' samples."""
    from evaluator.files.card_files import read_card

    terminal.show_card(read_card(file), file, with_samples=True)
